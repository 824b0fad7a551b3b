// Conversations in the browser's database, and as files. Servers behind one host have a database each, by their paths.
import {memory} from './dom.js';
import {PARAMETERS, parameterProblem} from './parameters.js';
import {ROLES, STATES, newId} from './tree.js';

const PLACE = new URL('.', document.baseURI).pathname;
export const keyFor = (name) => `setun:${PLACE}:${name}`;
const FORMAT = 'setun-conversations';
const TEXT_MOST = 16 << 20, NODES_MOST = 100000;

let database = null; // null: there is none, and nothing outlives the page
const channel = 'BroadcastChannel' in window ? new BroadcastChannel(keyFor('changes')) : null;

const asPromise = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

// Gives all conversations. Throws where the browser has no storage for them.
export async function open() {
  const request = indexedDB.open(keyFor('conversations'), 1);
  request.onupgradeneeded = () => request.result.createObjectStore('conversations', {keyPath: 'id'});
  database = await asPromise(request);
  database.onversionchange = () => database.close();
  return asPromise(database.transaction('conversations').objectStore('conversations').getAll());
}

// Calls f(id) when another tab changed or removed a conversation.
export function onOthersChange(f) {
  if (channel) channel.onmessage = (event) => f(event.data);
}

export async function load(id) {
  return database ? asPromise(database.transaction('conversations').objectStore('conversations').get(id)) : undefined;
}

// Messages that another tab added are kept, and of two versions of one message the newer one.
export function mergeInto(conversation, other) {
  const nodes = new Map();
  for (const id of new Set([...other.nodes.keys(), ...conversation.nodes.keys()])) {
    const a = conversation.nodes.get(id), b = other.nodes.get(id);
    nodes.set(id, !a || (b && b.changed > a.changed) ? b : a);
  }
  conversation.nodes = new Map([...nodes].sort((a, b) => a[1].created - b[1].created));
  if (other.changed > conversation.changed)
    for (const name of ['title', 'named', 'system', 'params', 'changed', 'chosen']) conversation[name] = other[name];
}

function transact(f) {
  return new Promise((resolve, reject) => {
    const transaction = database.transaction('conversations', 'readwrite');
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error ?? new Error('the browser gave up'));
    f(transaction.objectStore('conversations'));
  });
}

export async function save(conversation) {
  if (!database) return;
  await transact((store) => {
    const request = store.get(conversation.id);
    request.onsuccess = () => {
      if (request.result) mergeInto(conversation, request.result);
      store.put(conversation);
    };
  });
  channel?.postMessage(conversation.id);
}

export async function remove(id) {
  if (database) await transact((store) => store.delete(id));
  channel?.postMessage(id);
}

// ---- files ----

export function exportAll(conversations) {
  const plain = conversations.map((c) => ({...c, nodes: [...c.nodes.values()], chosen: [...c.chosen]}));
  return JSON.stringify({format: FORMAT, version: 1, exported: new Date().toISOString(), conversations: plain}, null, 1);
}

function expect(condition, where, what) {
  if (!condition) throw new Error(`${where}: expected ${what}`);
}

const isObject = (x) => typeof x === 'object' && x !== null && !Array.isArray(x);
const isId = (x) => typeof x === 'string' && /^[A-Za-z0-9-]{1,64}$/.test(x);
const isTime = (x) => Number.isFinite(x) && x >= 0 && x <= 8.64e15;
const isText = (x) => typeof x === 'string' && x.length <= TEXT_MOST;

function readStats(stats, where) {
  if (!stats) return null;
  expect(isObject(stats), where, 'an object');
  const read = {};
  for (const name of ['prompt', 'cached', 'tokens', 'perSecond', 'model']) {
    const value = stats[name];
    if (value === undefined || value === null) continue;
    expect(name === 'model' ? isText(value) : Number.isFinite(value), `${where}.${name}`, 'a number, or the name of the model');
    read[name] = value;
  }
  return read;
}

function readNode(node, where, nodes) {
  expect(isObject(node), where, 'an object');
  expect(isId(node.id) && !nodes.has(node.id), `${where}.id`, 'an id of its own');
  expect(node.parent === '' || nodes.has(node.parent), `${where}.parent`, 'the id of an earlier message, or ""');
  expect(ROLES.includes(node.role), `${where}.role`, ROLES.join(' or '));
  for (const name of ['content', 'reasoning', 'error']) expect(isText(node[name]), `${where}.${name}`, 'a text');
  for (const name of ['created', 'changed']) expect(isTime(node[name]), `${where}.${name}`, 'a time');
  expect(STATES.includes(node.state), `${where}.state`, STATES.join(', '));
  return {
    id: node.id, parent: node.parent, role: node.role, content: node.content, reasoning: node.reasoning,
    created: node.created, changed: node.changed, state: node.state === 'writing' ? 'stopped' : node.state,
    error: node.error, stats: readStats(node.stats, `${where}.stats`),
  };
}

function readParameters(params, where) {
  const read = {};
  expect(isObject(params), where, 'an object');
  for (const parameter of PARAMETERS) {
    if (params[parameter.name] === undefined) continue;
    const problem = parameterProblem(parameter, params[parameter.name]);
    expect(!problem, `${where}.${parameter.name}`, problem);
    read[parameter.name] = params[parameter.name];
  }
  return read;
}

function readConversation(c, where) {
  expect(isObject(c), where, 'an object');
  expect(isId(c.id), `${where}.id`, 'an id');
  expect(isText(c.title), `${where}.title`, 'a text');
  expect(typeof c.named === 'boolean', `${where}.named`, 'true or false');
  expect(isText(c.system), `${where}.system`, 'a text');
  for (const name of ['created', 'changed']) expect(isTime(c[name]), `${where}.${name}`, 'a time');
  expect(Array.isArray(c.nodes) && c.nodes.length <= NODES_MOST, `${where}.nodes`, 'a list of messages');
  expect(Array.isArray(c.chosen), `${where}.chosen`, 'a list of pairs');
  const nodes = new Map(), chosen = new Map();
  c.nodes.forEach((node, i) => {
    const read = readNode(node, `${where}.nodes[${i}]`, nodes);
    nodes.set(read.id, read);
  });
  c.chosen.forEach((pair, i) => {
    const fine = Array.isArray(pair) && pair.length === 2 && nodes.get(pair[1])?.parent === pair[0];
    expect(fine, `${where}.chosen[${i}]`, 'a message and one of its children');
    chosen.set(pair[0], pair[1]);
  });
  return {
    id: c.id, title: c.title, named: c.named, system: c.system, params: readParameters(c.params, `${where}.params`),
    created: c.created, changed: c.changed, nodes, chosen,
  };
}

// Conversations of a file's text; throws an Error that says what is wrong with it.
export function readExport(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch (error) {
    throw new Error(`it is not JSON: ${error.message}`);
  }
  expect(isObject(file) && file.format === FORMAT, 'format', `"${FORMAT}"`);
  expect(file.version === 1, 'version', '1');
  expect(Array.isArray(file.conversations), 'conversations', 'a list');
  return file.conversations.map((c, i) => readConversation(c, `conversations[${i}]`));
}

const sameText = (a, b) => exportAll([a]).replace(/"exported":.*/, '') === exportAll([b]).replace(/"exported":.*/, '');

// Adds all of them or, where the browser has no room, none. One that is there with other contents stays, and the
// file's gets another id. Gives those that were added.
export async function addAll(read, conversations) {
  const fresh = [];
  for (const c of read) {
    const there = conversations.get(c.id) ?? fresh.find((other) => other.id === c.id);
    if (there && sameText(there, c)) continue;
    fresh.push(there ? {...c, id: newId()} : c);
  }
  if (database) await transact((store) => fresh.forEach((c) => store.put(c)));
  for (const c of fresh) {
    conversations.set(c.id, c);
    channel?.postMessage(c.id);
  }
  return fresh;
}

// ---- what is not saved when the page goes away: this storage is written at once ----

export function keepUnsaved(conversations) {
  memory.set(keyFor('unsaved'), conversations.length ? exportAll(conversations) : null);
}

// Puts back what keepUnsaved kept. Gives the conversations that changed.
export function restoreUnsaved(conversations) {
  const text = memory.get(keyFor('unsaved'));
  memory.set(keyFor('unsaved'), null);
  let kept = [];
  try {
    if (text) kept = readExport(text);
  } catch {
    // another version's
  }
  for (const conversation of kept) {
    const there = conversations.get(conversation.id);
    if (there) mergeInto(conversation, there);
    conversations.set(conversation.id, conversation);
  }
  return kept;
}
