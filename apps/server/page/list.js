// The list of conversations, the latest first, with search, renaming and deletion.
import {byId, el, iconButton} from './dom.js';

export class List {
  // `actions`: open(c), rename(c, title), remove(c), isCurrent(c), isRunning(c).
  constructor(box, actions) {
    this.box = box;
    this.actions = actions;
    this.renaming = null;
  }

  show(conversations, search) {
    if (this.renaming) return;
    const wanted = search.trim().toLowerCase();
    const found = conversations.filter((c) => c.title.toLowerCase().includes(wanted)).sort((a, b) => b.changed - a.changed);
    const key = found.map((c) => [c.id, c.title, this.actions.isCurrent(c), this.actions.isRunning(c)].join('\t')).join('\n');
    byId('list-none').hidden = found.length > 0;
    byId('list-none').textContent = wanted ? 'No title has this in it.' : 'No conversations yet.';
    if (key === this.key) return;
    this.key = key;
    const focused = this.box.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
    this.box.replaceChildren(...found.map((c) => this.item(c)));
    if (focused) this.box.querySelector(`[data-focus="${focused}"]`)?.focus();
  }

  item(c) {
    const title = c.title || 'Without a title';
    const item = el('li', {class: this.actions.isCurrent(c) && 'current'},
      el('button', {type: 'button', class: 'open', 'data-focus': `${c.id}-open`, 'aria-current': this.actions.isCurrent(c) && 'true',
        title, onclick: () => this.actions.open(c)},
      this.actions.isRunning(c) && el('span', {class: 'dot', role: 'img', 'aria-label': 'being answered'}), title),
      iconButton('edit', `Rename ${title}`, () => this.rename(c, item), {'data-focus': `${c.id}-rename`}),
      iconButton('trash', `Delete ${title}`, () => this.actions.remove(c), {'data-focus': `${c.id}-delete`}));
    return item;
  }

  rename(c, item) {
    const input = el('input', {'aria-label': `New title of ${c.title}`, maxlength: '200'});
    const end = (keep) => {
      if (!this.renaming) return;
      this.renaming = this.key = null;
      const title = input.value.trim();
      this.actions.rename(c, keep && title && title !== c.title ? title : null);
      this.box.querySelector(`[data-focus="${c.id}-rename"]`)?.focus();
    };
    this.renaming = c;
    input.value = c.title;
    input.addEventListener('keydown', (event) => {
      if (event.isComposing || (event.key !== 'Enter' && event.key !== 'Escape')) return;
      event.preventDefault();
      event.stopPropagation();
      end(event.key === 'Enter');
    });
    input.addEventListener('blur', () => end(true));
    item.replaceChildren(input);
    input.focus();
    input.select();
  }
}
