// Making elements, and the small things that all parts of the page use.

const icons = {
  plus: 'M12 5v14M5 12h14',
  close: 'M6 6l12 12M18 6L6 18',
  menu: 'M4 7h16M4 12h16M4 17h16',
  up: 'M12 19V5M6 11l6-6 6 6',
  down: 'M12 5v14M6 13l6 6 6-6',
  stop: 'M7 7h10v10H7z',
  copy: 'M9 9h10v11H9zM15 9V4H5v11h4',
  check: 'M5 13l4 4L19 7',
  edit: 'M4 20l1-4L16 5l3 3L8 19zM14 7l3 3',
  again: 'M19 12a7 7 0 1 1-2-5M19 3v5h-5',
  more: 'M5 12h11M12 7l5 5-5 5M20 6v12',
  trash: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13',
  left: 'M14 6l-6 6 6 6',
  right: 'M10 6l6 6-6 6',
  sliders: 'M4 8h9M17 8h3M4 16h3M11 16h9M15 6v4M9 14v4',
  help: 'M9 9a3 3 0 1 1 4.5 2.6c-1 .6-1.5 1.1-1.5 2.4M12 17.5v.2',
  export: 'M12 4v11M7 9l5-5 5 5M5 19h14',
  import: 'M12 15V4M7 10l5 5 5-5M5 19h14',
  auto: 'M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16',
  light: 'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 2v2M12 20v2M4 12H2M22 12h-2M5 5l1.5 1.5M17.5 17.5L19 19M19 5l-1.5 1.5M6.5 17.5L5 19',
  dark: 'M20 14A8 8 0 1 1 10 4a6.5 6.5 0 0 0 10 10z',
};

export const byId = (id) => document.getElementById(id);

// el('p', {class: 'x', onclick: f, hidden: true}, 'text', node, [node, ...], ...): values and children that are false
// or null are left out. Many children come as an array: arguments have a limit.
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined && child !== false) element.append(child);
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function icon(name) {
  return svg('svg', {viewBox: '0 0 24 24', class: 'i', 'aria-hidden': 'true'}, svg('path', {d: icons[name]}));
}

// A button that shows only an icon; what it does is its label.
export function iconButton(name, label, onclick, more = {}) {
  return el('button', {type: 'button', class: 'icon', 'aria-label': label, title: label, onclick, ...more}, icon(name));
}

// Buttons of the document say by data-icon what they show.
export function addIcons() {
  for (const button of document.querySelectorAll('[data-icon]')) {
    button.prepend(icon(button.dataset.icon));
    if (!button.title && button.ariaLabel) button.title = button.ariaLabel;
  }
}

// Storage may be forbidden, or full: then nothing is remembered.
export const memory = {
  get(key, storage = 'localStorage') {
    try {
      return window[storage].getItem(key);
    } catch {
      return null;
    }
  },
  set(key, value, storage = 'localStorage') {
    try {
      if (value === null) window[storage].removeItem(key);
      else window[storage].setItem(key, value);
      return true;
    } catch {
      return false;
    }
  },
};

export async function copyText(text) {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  const area = el('textarea', {class: 'unseen', 'aria-hidden': 'true'});
  area.value = text;
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  const done = document.execCommand('copy'); // the only way where the page came over plain HTTP
  area.remove();
  focused?.focus();
  if (!done) throw new Error('the browser does not allow it');
  return undefined;
}

export function copyButton(what, text) {
  const button = iconButton('copy', `Copy the ${what}`, async () => {
    try {
      await copyText(text());
      button.replaceChildren(icon('check'));
      say('Copied');
      setTimeout(() => button.replaceChildren(icon('copy')), 1500);
    } catch (error) {
      notify(`Not copied: ${error.message}`);
    }
  });
  return button;
}

// What a screen reader says, once.
export function say(text) {
  byId('spoken').textContent = text;
}

// A message that stays until it is closed, or another one comes. `action`: [label, function].
export function notify(text, action) {
  const box = byId('notice');
  const close = () => box.replaceChildren();
  box.replaceChildren(
    el('span', {}, text),
    action ? el('button', {type: 'button', onclick: () => { close(); action[1](); }}, action[0]) : '',
    iconButton('close', 'Close the message', close),
  );
}

export const number = (x, digits = 0) =>
  Number(x).toLocaleString('en', {minimumFractionDigits: digits, maximumFractionDigits: digits});
