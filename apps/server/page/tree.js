// A conversation is a tree of messages: an edited message, and another answer, are siblings of the ones before. What is
// shown is the path that the chosen children make.
//
//   conversation: {id, title, named, system, params, created, changed, nodes: Map(id: node), chosen: Map(parent: id)}
//   node: {id, parent ('': none), role, content, reasoning, created, changed, state, error, stats}
//   state: 'done', 'writing', 'stopped', 'failed', 'length' (the most tokens were reached)

export const STATES = ['done', 'writing', 'stopped', 'failed', 'length'];
export const ROLES = ['user', 'assistant'];

// crypto.randomUUID is not there for pages that came over plain HTTP.
export function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16).padStart(2, '0')).join('');
}

export function newConversation(defaults = {}) {
  const now = Date.now();
  return {
    id: newId(), title: '', named: false, system: defaults.system ?? '', params: {...defaults.params}, created: now,
    changed: now, nodes: new Map(), chosen: new Map(),
  };
}

export function addNode(conversation, parent, role, content, state = 'done') {
  const now = Date.now();
  const node = {id: newId(), parent, role, content, reasoning: '', created: now, changed: now, state, error: '', stats: null};
  conversation.nodes.set(node.id, node);
  choose(conversation, node);
  if (!conversation.named && !conversation.title && role === 'user') conversation.title = titleOf(content);
  return node;
}

export function titleOf(text) {
  const line = text.trim().split('\n')[0].replace(/\s+/g, ' ');
  return line.length > 60 ? `${line.slice(0, 59)}\u2026` : line;
}

export function choose(conversation, node) {
  conversation.chosen.set(node.parent, node.id);
  conversation.changed = Date.now();
}

export function childrenOf(conversation, parent) {
  return [...conversation.nodes.values()].filter((node) => node.parent === parent);
}

export function siblings(conversation, node) {
  return childrenOf(conversation, node.parent);
}

// The messages that are shown, from the first one on.
export function pathOf(conversation) {
  const children = new Map();
  for (const node of conversation.nodes.values()) {
    if (!children.has(node.parent)) children.set(node.parent, []);
    children.get(node.parent).push(node);
  }
  const path = [];
  for (let parent = ''; children.has(parent); parent = path.at(-1).id) {
    const chosen = conversation.nodes.get(conversation.chosen.get(parent));
    path.push(chosen && chosen.parent === parent ? chosen : children.get(parent).at(-1));
  }
  return path;
}

// What the server is sent: the system prompt and the path up to and with a node.
export function messagesUpTo(conversation, id) {
  const messages = [];
  for (let node = conversation.nodes.get(id); node; node = conversation.nodes.get(node.parent)) {
    if (node.role === 'user' || node.content) messages.unshift({role: node.role, content: node.content});
  }
  if (conversation.system.trim()) messages.unshift({role: 'system', content: conversation.system});
  return messages;
}
