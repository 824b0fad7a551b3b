// The messages that are shown: an element for each, kept as long as the message is on the path.
import {copyButton, el, iconButton, number} from './dom.js';
import {render} from './markdown.js';
import {pathOf, siblings} from './tree.js';

const NAMES = {user: 'You', assistant: 'Answer'};

export class Messages {
  // `actions`: edit(node, text), again(node), resume(node), choose(node), each of the shown conversation.
  constructor(box, actions) {
    this.box = box;
    this.actions = actions;
    this.views = new Map(); // id of a node: its view
    this.conversation = null;
  }

  // Shows a conversation's path. `busy`: an answer of it is being written.
  show(conversation, busy) {
    if (conversation !== this.conversation) this.views.clear();
    this.conversation = conversation;
    const path = conversation ? pathOf(conversation) : [];
    const views = new Map();
    for (const node of path) {
      const view = this.views.get(node.id) ?? this.makeView(node);
      view.node = node;
      views.set(node.id, view);
      this.update(node, busy, view);
    }
    this.views = views;
    const wanted = [...views.values()].map((view) => view.article);
    for (const child of [...this.box.children]) if (!wanted.includes(child)) child.remove();
    wanted.forEach((article, i) => {
      if (this.box.children[i] !== article) this.box.insertBefore(article, this.box.children[i] ?? null);
    });
  }

  makeView(node) {
    const view = {node, editing: false, open: null};
    view.heading = el('h2', {class: 'unseen', id: `name-${node.id}`}, NAMES[node.role]);
    view.reasoning = el('div', {class: 'prose'});
    view.summary = el('span');
    view.details = el('details', {class: 'reasoning', hidden: true}, el('summary', {}, view.summary), view.reasoning);
    view.details.addEventListener('toggle', () => { view.open = view.details.open; });
    view.text = el('div', {class: node.role === 'user' ? 'plain' : 'prose'});
    view.body = el('div', {class: 'body'}, view.text);
    view.error = el('div', {class: 'error', role: 'alert', hidden: true});
    view.foot = el('footer', {class: 'foot'});
    view.article = el('article', {class: `message ${node.role}`, 'aria-labelledby': `name-${node.id}`, 'data-id': node.id},
      view.heading, node.role === 'assistant' && view.details, view.body, node.role === 'assistant' && view.error, view.foot);
    return view;
  }

  // Shows what changed of a message.
  update(node, busy, view = this.views.get(node.id)) {
    if (!view || view.editing) return;
    const writing = node.state === 'writing' && busy;
    if (node.role === 'user') {
      if (view.text.textContent !== node.content) view.text.textContent = node.content;
    } else {
      render(view.text, node.content);
      this.updateReasoning(view, node, writing);
    }
    view.article.setAttribute('aria-busy', String(writing));
    view.article.classList.toggle('waiting', writing && !node.content && !node.reasoning);
    this.updateError(view, node, busy);
    this.updateFoot(view, node, busy, writing);
  }

  updateReasoning(view, node, writing) {
    const thinking = writing && !node.content;
    view.details.hidden = !node.reasoning;
    if (!node.reasoning) return;
    view.summary.textContent = thinking ? 'Reasoning\u2026' : 'Reasoning';
    view.details.classList.toggle('thinking', thinking);
    render(view.reasoning, node.reasoning);
  }

  updateError(view, node, busy) {
    const failed = node.state === 'failed';
    const key = failed ? `${node.error}|${busy}` : '';
    view.error.hidden = !failed;
    if (view.errorKey === key) return;
    view.errorKey = key;
    view.error.replaceChildren(...(failed ? [
      el('span', {}, node.error || 'The answer failed.'),
      el('button', {type: 'button', disabled: busy, onclick: () => this.actions.again(view.node)}, 'Try again'),
    ] : []));
  }

  // The buttons are made anew only when others are needed, so that the focus stays where it is.
  updateFoot(view, node, busy, writing) {
    const all = siblings(this.conversation, node);
    const key = [node.state, busy, writing, all.map((n) => n.id).join(), node.content === ''].join('|');
    if (view.footKey !== key) {
      view.footKey = key;
      const label = view.foot.contains(document.activeElement) ? document.activeElement.ariaLabel : null;
      view.stats = el('span', {class: 'stats'});
      view.foot.replaceChildren(...this.branchButtons(node, all, busy), ...(writing ? [] : this.buttons(view, node, busy)), view.stats);
      if (label) [...view.foot.querySelectorAll('button')].find((button) => button.ariaLabel === label)?.focus();
    }
    view.stats.textContent = this.statsOf(node);
  }

  branchButtons(node, all, busy) {
    if (all.length < 2) return [];
    const i = all.findIndex((other) => other.id === node.id);
    const go = (step, name, label) => iconButton(name, label, () => this.actions.choose(all[i + step]),
      {disabled: busy || !all[i + step]});
    return [el('span', {class: 'branches', role: 'group', 'aria-label': `Branch ${i + 1} of ${all.length}`},
      go(-1, 'left', 'Previous branch'), el('span', {}, `${i + 1} / ${all.length}`), go(1, 'right', 'Next branch'))];
  }

  buttons(view, node, busy) {
    const whose = node.role === 'user' ? 'message' : 'answer';
    const found = node.content ? [copyButton(whose, () => view.node.content),
      iconButton('edit', `Edit the ${whose}`, () => this.edit(view), {disabled: busy})] : [];
    if (node.role === 'assistant') {
      if (node.state !== 'failed' || node.content) found.push(iconButton('again', 'Another answer', () => this.actions.again(view.node), {disabled: busy}));
      if (node.state !== 'done' && node.content)
        found.push(iconButton('more', 'Continue the answer', () => this.actions.resume(view.node), {disabled: busy}));
    }
    return found;
  }

  statsOf(node) {
    const {tokens, perSecond, prompt, cached} = node.stats ?? {};
    const parts = [];
    if (node.state === 'stopped') parts.push('stopped');
    if (node.state === 'length') parts.push('token limit reached');
    if (tokens) parts.push(`${number(tokens)} token${tokens === 1 ? '' : 's'}`);
    if (perSecond) parts.push(`${number(perSecond, perSecond < 100 ? 1 : 0)} tokens/s`);
    if (prompt && node.state !== 'writing') parts.push(`prompt ${number(prompt)}${cached ? `, ${number(cached)} cached` : ''}`);
    return parts.join(' \u00b7 ');
  }

  // Puts an editor in the place of a message's text.
  edit(view) {
    const {node} = view, mine = node.role === 'user';
    const area = el('textarea', {'aria-label': mine ? 'Edit the message' : 'Edit the answer', rows: '3'});
    const close = () => {
      view.editing = false;
      view.footKey = null;
      view.article.classList.remove('editing');
      view.body.replaceChildren(view.text);
      view.foot.hidden = false;
    };
    const cancel = () => {
      close();
      this.update(view.node, false, view);
      view.foot.querySelector('[aria-label^="Edit"]')?.focus();
    };
    const accept = () => {
      if (!area.value.trim()) return;
      close();
      this.actions.edit(view.node, area.value);
    };
    area.value = node.content;
    area.addEventListener('keydown', (event) => {
      if (event.isComposing) return;
      if (event.key === 'Escape') cancel();
      else if (event.key === 'Enter' && (mine ? !event.shiftKey : event.ctrlKey || event.metaKey)) accept();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    view.editing = true;
    view.article.classList.add('editing');
    view.foot.hidden = true;
    view.body.replaceChildren(area, el('div', {class: 'buttons'},
      el('button', {type: 'button', onclick: cancel}, 'Cancel'),
      el('button', {type: 'button', class: 'first', onclick: accept}, mine ? 'Send' : 'Save')));
    fit(area);
    area.addEventListener('input', () => fit(area));
    area.focus();
  }

  editLast() {
    const mine = [...this.views.values()].filter((view) => view.node.role === 'user');
    if (mine.length) this.edit(mine.at(-1));
  }
}

// A text area as high as its text; the style sheet has the most.
export function fit(area) {
  area.style.height = 'auto';
  area.style.height = `${area.scrollHeight + area.offsetHeight - area.clientHeight}px`;
}

export function emptyState(model) {
  return el('div', {class: 'empty'}, el('p', {}, model ? `Ask ${model}` : 'Ask something'));
}
