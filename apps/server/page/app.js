// The page: what is shown, and what the buttons and keys do.
import {ServerError, currentKey, getJson, keepKey} from './api.js';
import {answer, isRunning, runningNode, stop, write} from './answers.js';
import {addIcons, byId, el, icon, memory, notify, number, say} from './dom.js';
import {List} from './list.js';
import {Messages, emptyState, fit} from './messages.js';
import {ServerState} from './server.js';
import {Settings, savedDefaults} from './settings.js';
import * as store from './store.js';
import {addNode, choose, newConversation, pathOf} from './tree.js';

const conversations = new Map();
let current = newConversation(); // in `conversations` once it has a message
let models = []; // as /v1/models has them
let contextSize = 0; // of the model that is asked; 0: it is not known

// ---- saving ----

const unsaved = new Map(); // conversation: how often it changed since it was saved
let saving = null; // what will

function saveFailed(error) {
  const full = error?.name === 'QuotaExceededError';
  notify(full ? 'Not saved: the browser has no more room for this site. Export your conversations, and delete some.'
    : `Not saved: ${error?.message ?? error}`, ['Export', exportFile]);
}

async function saveAll() {
  saving = null;
  for (const [conversation, changes] of [...unsaved]) {
    try {
      if (conversations.has(conversation.id)) await store.save(conversation);
      if (unsaved.get(conversation) === changes) unsaved.delete(conversation);
    } catch (error) {
      saveFailed(error);
    }
  }
}

function saveSoon(conversation) {
  unsaved.set(conversation, (unsaved.get(conversation) ?? 0) + 1);
  saving ??= setTimeout(saveAll, 500);
}

function saveNow(conversation) {
  conversation.changed = Date.now();
  saveSoon(conversation);
  clearTimeout(saving);
  saving = setTimeout(saveAll);
}

// ---- what is shown ----

const log = byId('log');
const input = byId('input');
let follows = true; // the end of the messages stays in view

const messages = new Messages(byId('messages'), {
  edit: editNode,
  again: (node) => again(current, node),
  resume: (node) => write(current, node, hooks(current)),
  choose(node) {
    choose(current, node);
    saveNow(current);
    show();
  },
});
const list = new List(byId('list'), {
  open: openConversation,
  rename(conversation, title) { // null: it stays
    if (title !== null) {
      Object.assign(conversation, {title, named: true});
      saveNow(conversation);
    }
    show();
  },
  remove: removeConversation,
  isCurrent: (conversation) => conversation === current,
  isRunning,
});
const settings = new Settings(byId('settings-form'), () => current, () => {
  if (conversations.has(current.id)) saveNow(current);
});

function showList() {
  list.show([...conversations.values()], byId('search').value);
}

function show() {
  const busy = isRunning(current), title = current.title || 'New conversation';
  messages.show(current, busy);
  if (!current.nodes.size) byId('messages').replaceChildren(emptyState(byId('model').value));
  byId('title').textContent = title;
  document.title = current.nodes.size ? `${title} \u2013 Setun` : 'Setun';
  byId('stop').hidden = !busy;
  byId('send').hidden = busy;
  showContext();
  showList();
  keepEnd();
}

function showContext() {
  const last = pathOf(current).findLast((node) => node.stats?.prompt);
  const used = last ? last.stats.prompt + (last.stats.tokens ?? 0) : 0;
  byId('context').textContent = used && contextSize ? `${number(used)} of ${number(contextSize)} tokens of context` : '';
}

function keepEnd() {
  if (follows) log.scrollTop = log.scrollHeight;
  byId('latest').hidden = follows || !current.nodes.size;
}

// Parts of an answer are shown as often as the screen is painted.
let painting = false;
function paintSoon() {
  if (painting) return;
  painting = true;
  requestAnimationFrame(() => {
    painting = false;
    const node = runningNode(current);
    if (!node) return;
    messages.update(node, true);
    keepEnd();
  });
}

// ---- answers ----

function hooks(conversation) {
  return {
    model: byId('model').value,
    changed(node) {
      if (conversation === current) paintSoon();
      saveSoon(conversation);
      if (node.state === 'writing' && !node.content && !node.reasoning) {
        show();
        say('The answer is being written.');
      }
    },
    ended(node, problem) {
      saveNow(conversation);
      show();
      if (conversation === current) sayEnd(node);
      if (!problem && !contextSize) meetServer();
      if (problem?.status === 401) askKey(problem.message, () => again(conversation, node));
    },
  };
}

function sayEnd(node) {
  const text = byId('messages').querySelector(`[data-id="${node.id}"] .prose:not(details *)`)?.textContent ?? '';
  if (node.state === 'stopped') say('Stopped.');
  else if (node.state !== 'failed') say(text.length < 1000 ? `Answer: ${text}` : `The answer is complete, ${number(text.split(/\s+/).length)} words.`);
}

// An answer to a message; there may be others already.
function ask(parent, conversation = current) {
  if (isRunning(conversation)) return;
  follows = true;
  answer(conversation, parent, hooks(conversation));
}

// Another answer in addition to this one, or in its place if it is empty.
function again(conversation, node) {
  const nothing = node.role === 'assistant' && node.state === 'failed' && !node.content && !node.reasoning;
  if (!nothing) ask(node.parent, conversation);
  else if (!isRunning(conversation)) write(conversation, node, hooks(conversation));
}

function send(text) {
  if (!text.trim() || isRunning(current)) return;
  setInput('');
  conversations.set(current.id, current);
  memory.set(store.keyFor('current'), current.id);
  const node = addNode(current, pathOf(current).at(-1)?.id ?? '', 'user', text);
  saveNow(current);
  ask(node.id);
}

function editNode(node, text) {
  if (text === node.content) {
    show();
  } else if (node.role === 'user') {
    ask(addNode(current, node.parent, 'user', text).id);
  } else {
    addNode(current, node.parent, 'assistant', text);
    saveNow(current);
    show();
  }
  input.focus();
}

// ---- conversations ----

const draftKey = () => store.keyFor(conversations.has(current.id) ? `draft:${current.id}` : 'draft');

function setInput(text) {
  input.value = text;
  memory.set(draftKey(), text || null);
  fit(input);
}

function openConversation(conversation, focus = true) {
  current = conversation;
  follows = true;
  memory.set(store.keyFor('current'), conversations.has(current.id) ? current.id : null);
  input.value = memory.get(draftKey()) ?? '';
  settings.show();
  show();
  closeSide(false);
  fit(input);
  if (focus) input.focus();
}

async function removeConversation(conversation) {
  stop(conversation);
  conversations.delete(conversation.id);
  memory.set(store.keyFor(`draft:${conversation.id}`), null);
  if (conversation === current) openConversation(newConversation(savedDefaults()), false);
  showList();
  byId('new').focus();
  try {
    await store.remove(conversation.id);
    notify(`Deleted: ${conversation.title}`, ['Undo', () => {
      conversations.set(conversation.id, conversation);
      saveNow(conversation);
      openConversation(conversation);
    }]);
  } catch (error) {
    notify(`Not deleted: ${error.message}`);
  }
}

async function othersChanged(id) {
  const other = await store.load(id), mine = conversations.get(id);
  if (other && mine) store.mergeInto(mine, other);
  else if (other) conversations.set(id, other);
  else if (mine && !isRunning(mine)) conversations.delete(id);
  if (mine && !other && mine === current && !isRunning(mine)) openConversation(newConversation(savedDefaults()), false);
  else show();
}

// ---- files ----

function exportFile() {
  const file = new Blob([store.exportAll([...conversations.values()])], {type: 'application/json'});
  const address = URL.createObjectURL(file);
  el('a', {href: address, download: `setun-conversations-${new Date().toISOString().slice(0, 10)}.json`}).click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}

async function importFile(file) {
  try {
    const read = store.readExport(await file.text());
    const added = await store.addAll(read, conversations);
    const there = read.length - added.length;
    notify(`Imported ${number(added.length)} of ${number(read.length)} conversations.${there ? ` ${number(there)} were there already.` : ''}`);
    showList();
  } catch (error) {
    const full = error?.name === 'QuotaExceededError';
    notify(`Nothing was imported from ${file.name}: ${full ? 'the browser has no more room for this site' : error.message}.`);
  }
}

// ---- panels, dialogs ----

const isNarrow = () => matchMedia('(max-width: 799px)').matches;
const covers = () => matchMedia('(max-width: 1179px)').matches; // the settings lie over the messages

// What lies below an open panel cannot be reached; also after the window's width changed.
function showCovered() {
  const side = byId('side').classList.contains('open') && isNarrow();
  const settingsOver = !byId('settings').hidden && covers();
  byId('scrim').hidden = !side && !settingsOver;
  byId('main').inert = side || settingsOver;
  byId('side').inert = settingsOver;
}

function cover(panel, opener, open, focus) {
  panel.classList.toggle('open', open);
  opener.ariaExpanded = String(open);
  showCovered();
  if (!focus) return;
  if (open) panel.querySelector('button, input, textarea').focus();
  else opener.focus();
}

const closeSide = (focus = true) => {
  if (byId('side').classList.contains('open')) cover(byId('side'), byId('side-open'), false, focus);
};

function toggleSettings(open, focus = true) {
  byId('settings').hidden = !open;
  cover(byId('settings'), byId('settings-open'), open, focus);
}

let afterKey = null;
function askKey(why, then = null) {
  const dialog = byId('key-dialog');
  afterKey = then;
  byId('key-why').textContent = why;
  if (!dialog.open) dialog.showModal();
}

function showTheme() {
  const theme = document.documentElement.dataset.theme ?? 'auto';
  const button = byId('theme');
  button.replaceChildren(icon(theme));
  button.ariaLabel = button.title = `Colours: ${{auto: 'as the system', light: 'light', dark: 'dark'}[theme]}`;
}

function nextTheme() {
  const themes = ['auto', 'light', 'dark'];
  const theme = themes[(themes.indexOf(document.documentElement.dataset.theme ?? 'auto') + 1) % 3];
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  memory.set('setun-theme', theme === 'auto' ? null : theme);
  showTheme();
  say(byId('theme').ariaLabel);
}

// ---- keys ----

const touch = matchMedia('(hover: none) and (pointer: coarse)').matches; // Enter then is a line break
const KEYS = [
  ['Enter', 'send'], ['Shift+Enter', 'line break'], ['Esc', 'stop the answer, close what is open'],
  ['Up', 'in an empty box: edit the last message'], ['Alt+N', 'new conversation'], ['Alt+F', 'search'],
  ['Alt+S', 'settings'], ['Alt+R', 'another answer'], ['Alt+H', 'this list'],
];

// A box that gets the focus back from a dialog takes no text in chromium before it gets it once more.
function focusInput() {
  if (document.activeElement !== input) return;
  input.blur();
  input.focus();
}

function escape() {
  if (byId('side').classList.contains('open')) closeSide();
  else if (!byId('settings').hidden && covers()) toggleSettings(false);
  else if (isRunning(current)) stop(current);
  else if (!byId('settings').hidden) toggleSettings(false);
}

const alt = {
  KeyN: () => openConversation(newConversation(savedDefaults())),
  KeyF() {
    if (isNarrow()) cover(byId('side'), byId('side-open'), true, true);
    byId('search').focus();
  },
  KeyS: () => toggleSettings(byId('settings').hidden),
  KeyR() {
    const last = pathOf(current).at(-1);
    if (last) ask(last.role === 'user' ? last.id : last.parent);
  },
  KeyH: () => byId('help-dialog').showModal(),
};

function onKey(event) {
  if (event.isComposing || document.querySelector('dialog[open]')) return;
  if (event.key === 'Escape') escape();
  else if (event.altKey && !event.ctrlKey && !event.metaKey && alt[event.code]) alt[event.code]();
  else return;
  event.preventDefault();
}

function onInputKey(event) {
  if (event.isComposing) return;
  if (event.key === 'Enter' && !event.shiftKey && !touch) {
    event.preventDefault();
    send(input.value);
  } else if (event.key === 'ArrowUp' && !input.value && !isRunning(current)) {
    event.preventDefault();
    messages.editLast();
  }
}

// ---- the server ----

// Waits until the model is there, then asks what it is.
async function meetServer() {
  try {
    await getJson('health');
    models = (await getJson('v1/models')).data ?? [];
    const select = byId('model'), isLoaded = ({status}) => !status || status.value === 'loaded';
    const before = select.value || memory.get(store.keyFor('model'));
    const chosen = models.find(({id}) => id === before) ?? models.find(isLoaded) ?? models[0];
    select.replaceChildren(...models.map(({id}) => el('option', {value: id}, id)));
    select.hidden = models.length < 2;
    if (chosen) select.value = chosen.id;
    contextSize = 0;
    if (chosen && isLoaded(chosen)) { // to ask for the properties of another one would load it
      const defaults = (await getJson(`props?model=${encodeURIComponent(chosen.id)}`)).default_generation_settings ?? {};
      contextSize = defaults.n_ctx ?? 0;
      settings.showDefaults(defaults.params ?? {});
    }
    if (!current.nodes.size) show();
    showContext();
  } catch (error) {
    if (error.status === 401) {
      askKey(currentKey() ? error.message : 'This server asks for a key.', meetServer);
    } else if (error instanceof ServerError && (error.status === 503 || error.status === 0)) {
      byId('context').textContent = error.message;
      setTimeout(meetServer, 1000);
    } else {
      notify(error.message);
    }
  }
}

// ---- wiring ----

function wire() {
  const on = (id, event, f) => byId(id).addEventListener(event, f);
  on('new', 'click', () => openConversation(newConversation(savedDefaults())));
  on('search', 'input', showList);
  on('export', 'click', exportFile);
  on('import', 'click', () => byId('import-file').click());
  on('import-file', 'change', (event) => {
    const file = event.target.files[0];
    if (file) importFile(file);
    event.target.value = '';
  });
  on('composer', 'submit', (event) => {
    event.preventDefault();
    send(input.value);
    input.focus();
  });
  on('stop', 'click', () => {
    stop(current);
    input.focus();
  });
  on('input', 'keydown', onInputKey);
  on('input', 'input', () => setInput(input.value));
  on('model', 'change', () => {
    memory.set(store.keyFor('model'), byId('model').value);
    meetServer();
  });
  on('theme', 'click', nextTheme);
  on('help', 'click', alt.KeyH);
  on('side-open', 'click', () => cover(byId('side'), byId('side-open'), true, true));
  on('side-close', 'click', () => closeSide());
  on('settings-open', 'click', () => toggleSettings(byId('settings').hidden));
  on('settings-close', 'click', () => toggleSettings(false));
  on('scrim', 'click', escape);
  on('latest', 'click', () => {
    follows = true;
    keepEnd();
    log.focus();
  });
  on('log', 'scroll', () => {
    follows = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    byId('latest').hidden = follows;
  });
  on('key-form', 'submit', () => {
    keepKey(byId('key').value, byId('key-keep').checked);
    byId('key').value = '';
    afterKey?.();
  });
  on('key-cancel', 'click', () => byId('key-dialog').close());
  for (const dialog of document.querySelectorAll('dialog')) dialog.addEventListener('close', focusInput);
  document.addEventListener('keydown', onKey);
  window.addEventListener('resize', showCovered);
  window.addEventListener('pagehide', () => store.keepUnsaved([...unsaved.keys()].filter((c) => conversations.has(c.id))));
  byId('help-keys').append(...KEYS.map(([key, what]) => el('tr', {}, el('th', {scope: 'row'}, el('kbd', {}, key)), el('td', {}, what))));
  byId('keys').textContent = touch ? '' : 'Enter sends, Shift+Enter breaks the line';
}

async function start() {
  addIcons();
  showTheme();
  wire();
  try {
    for (const conversation of await store.open()) conversations.set(conversation.id, conversation);
    store.onOthersChange(othersChanged);
    store.restoreUnsaved(conversations).forEach(saveNow);
    // An answer whose page went away is as if it was stopped.
    for (const conversation of conversations.values())
      for (const node of conversation.nodes.values()) if (node.state === 'writing') node.state = 'stopped';
  } catch (error) {
    notify(`Conversations are not kept: the browser does not allow it (${error?.message ?? error}).`);
  }
  openConversation(conversations.get(memory.get(store.keyFor('current'))) ?? newConversation(savedDefaults()), !touch);
  new ServerState(byId('server'), () => byId('server').checkVisibility(), () => models.length > 1);
  await meetServer();
}

start();
