// The form of the system prompt and the parameters. Each conversation has its own; new ones begin with what was saved
// for them.
import {el, memory, notify} from './dom.js';
import {PARAMETERS, parameterProblem} from './parameters.js';
import {keyFor} from './store.js';

export function savedDefaults() {
  try {
    const {system, params} = JSON.parse(memory.get(keyFor('defaults')) ?? '{}');
    const fine = PARAMETERS.filter((p) => params?.[p.name] !== undefined && !parameterProblem(p, params[p.name]));
    return {system: typeof system === 'string' ? system : '', params: Object.fromEntries(fine.map((p) => [p.name, params[p.name]]))};
  } catch {
    return {system: '', params: {}};
  }
}

function textOf(parameter, value) {
  if (value === undefined) return '';
  if (parameter.lines) return value.map((text) => text.replace(/\\/g, '\\\\').replace(/\n/g, '\\n')).join('\n');
  return String(value);
}

// The value of a text; undefined: the default.
function valueOf(parameter, text) {
  if (parameter.lines) {
    const texts = text.split('\n').filter((line) => line);
    return texts.length ? texts.map((line) => line.replace(/\\(\\|n)/g, (_, c) => (c === 'n' ? '\n' : '\\'))) : undefined;
  }
  if (parameter.choices) return text || undefined;
  return text.trim() ? Number(text) : undefined;
}

export class Settings {
  // `current()` gives the conversation, `changed()` is called after it was changed.
  constructor(form, current, changed) {
    this.current = current;
    this.changed = changed;
    this.system = el('textarea', {id: 'system', rows: '4', placeholder: 'None'});
    this.fields = PARAMETERS.map((parameter) => this.makeField(parameter));
    this.system.addEventListener('input', () => {
      this.current().system = this.system.value;
      this.changed();
    });
    form.append(
      el('label', {for: 'system'}, 'System prompt'), this.system,
      ...this.fields.flatMap((field) => field.row),
      el('div', {class: 'buttons'},
        el('button', {type: 'button', onclick: () => this.reset()}, 'Reset'),
        el('button', {type: 'button', class: 'first', onclick: () => this.keep()}, 'Use for new ones')));
    form.addEventListener('submit', (event) => event.preventDefault());
  }

  makeField(parameter) {
    const id = `parameter-${parameter.name}`;
    const more = {id, 'aria-describedby': `${id}-help`};
    const problem = el('span', {class: 'problem', role: 'alert'});
    let input;
    if (parameter.choices) input = el('select', more, ...parameter.choices.map(([value, label]) => el('option', {value}, label)));
    else if (parameter.lines) input = el('textarea', {...more, rows: '2', placeholder: 'none'});
    else input = el('input', {...more, inputmode: 'decimal', placeholder: parameter.fallback ?? 'default'});
    const row = el('div', {class: `field${parameter.lines ? ' wide' : ''}`}, el('label', {for: id}, parameter.label), input,
      el('span', {class: 'help', id: `${id}-help`}, parameter.help), problem);
    input.addEventListener('input', () => {
      const value = valueOf(parameter, input.value);
      const wrong = value === undefined ? null : parameterProblem(parameter, value);
      input.setAttribute('aria-invalid', String(Boolean(wrong)));
      problem.textContent = wrong ? `Expected ${wrong}.` : '';
      if (wrong) return;
      if (value === undefined) delete this.current().params[parameter.name];
      else this.current().params[parameter.name] = value;
      this.changed();
    });
    return {parameter, input, row, problem};
  }

  // Shows those of the current conversation.
  show() {
    this.system.value = this.current().system;
    for (const {parameter, input, problem} of this.fields) {
      input.value = textOf(parameter, this.current().params[parameter.name]);
      input.setAttribute('aria-invalid', 'false');
      problem.textContent = '';
    }
  }

  // The server's own values, where nothing else is given.
  showDefaults(values) {
    for (const {parameter, input} of this.fields) {
      const value = values[parameter.name];
      if (!parameter.lines && !parameter.choices && !parameter.fallback && Number.isFinite(value))
        input.placeholder = String(Number(value.toPrecision(6)));
    }
  }

  reset() {
    Object.assign(this.current(), {system: '', params: {}});
    this.show();
    this.changed();
  }

  keep() {
    const {system, params} = this.current();
    const kept = memory.set(keyFor('defaults'), JSON.stringify({system, params}));
    notify(kept ? 'New conversations begin with these settings.' : 'Not kept: the browser has no room, or does not allow it.');
  }
}
