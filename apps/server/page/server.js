// The server's state: tokens a second over the last minute, the slots of the batch, the cache. Asked for each second
// while it can be seen.
import {getJson, getText} from './api.js';
import {el, number, svg} from './dom.js';

const SECONDS = 60, WIDTH = 240, HEIGHT = 44;

// Of Prometheus' text: the values by their names, of all models together.
function readMetrics(text) {
  const values = {};
  for (const line of text.split('\n')) {
    const match = /^(\w+:\w+)(?:\{.*\})? (\S+)$/.exec(line);
    if (match) values[match[1]] = (values[match[1]] ?? 0) + Number(match[2]);
  }
  return values;
}

// A bar with one part after another: [[share, class], ...], shares of 1.
function bar(parts, label) {
  let x = 0;
  const rects = parts.map(([share, name]) => {
    const rect = svg('rect', {x: x * 100, width: Math.max(0, Math.min(share, 1 - x)) * 100, height: 6, class: name});
    x += share;
    return rect;
  });
  return svg('svg', {viewBox: '0 0 100 6', preserveAspectRatio: 'none', class: 'bar', role: 'img', 'aria-label': label}, ...rects);
}

export class ServerState {
  // `several()`: whether there are several models. Then /slots is not asked for: it would load the one that it is about.
  constructor(box, isSeen, several) {
    this.isSeen = isSeen;
    this.several = several;
    this.samples = []; // {time, tokens}: how many were drawn until then
    this.line = svg('path', {class: 'line'});
    this.area = svg('path', {class: 'area'});
    this.plot = svg('svg', {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', class: 'plot', role: 'img',
      'aria-label': 'Tokens a second over the last minute'}, this.area, this.line);
    this.rate = el('strong');
    this.most = el('span', {class: 'quiet'});
    this.rates = el('div', {class: 'rates'}, el('span', {}, this.rate, ' tokens/s'), this.most);
    this.slots = el('div', {class: 'slots'});
    this.cache = el('div', {class: 'cache'});
    this.problem = el('p', {class: 'quiet', hidden: true});
    box.append(this.rates, this.plot, this.slots, this.cache, this.problem);
    this.off = {}; // what the server was told not to show
    this.waiting = false;
    setInterval(() => this.look(), 1000);
  }

  async look() {
    if (this.waiting || document.hidden || !this.isSeen()) return;
    this.waiting = true;
    try {
      const [text, slots] = await Promise.all([this.ask('metrics', getText), this.several() ? null : this.ask('slots', getJson)]);
      const metrics = text === null ? null : readMetrics(text);
      this.showMetrics(metrics);
      if (slots) this.showSlots(slots.filter((slot) => slot.is_processing).length, slots.length, slots);
      else this.showSlots(metrics?.['llamacpp:requests_processing'], metrics?.['setun:slots'], []);
      this.showProblem(Object.values(this.off).join(' '));
    } catch (error) {
      this.showProblem(error.status === 401 ? 'A key is needed.' : error.message);
    }
    this.waiting = false;
  }

  showProblem(text) {
    this.problem.textContent = text;
    this.problem.hidden = !text;
  }

  // null: this server does not show it.
  async ask(path, get) {
    if (this.off[path]) return null;
    try {
      return await get(path);
    } catch (error) {
      if (error.status !== 501) throw error;
      this.off[path] = `/${path}: ${error.message}.`;
      return null;
    }
  }

  showMetrics(values) {
    this.rates.hidden = this.cache.hidden = !values;
    this.plot.toggleAttribute('hidden', !values);
    if (!values) return;
    const now = performance.now() / 1000;
    const tokens = values['llamacpp:tokens_predicted_total'] ?? 0;
    if (this.samples.length && this.samples.at(-1).tokens > tokens) this.samples = []; // the server began anew
    this.samples.push({time: now, tokens});
    while (this.samples[0].time < now - SECONDS - 5) this.samples.shift();
    this.showPlot(now);
    const pages = values['setun:cache_pages'], used = values['setun:cache_pages_used'], kept = values['setun:cache_pages_kept'];
    const share = (n) => (pages ? n / pages : 0);
    const percent = (n) => `${number(100 * share(n))} %`;
    const label = `Cache: ${percent(used)} in use, ${percent(kept)} kept for prompts that begin the same`;
    const waiting = values['llamacpp:requests_deferred'];
    this.cache.replaceChildren(
      el('div', {class: 'rates'}, el('span', {}, 'Cache'), el('span', {class: 'quiet'}, `${percent(used)} in use \u00b7 ${percent(kept)} kept`)),
      bar([[share(used), 'used'], [share(kept), 'kept']], label),
      waiting ? el('p', {class: 'quiet'}, `${number(waiting)} waiting`) : '');
  }

  showPlot(now) {
    const points = [];
    for (let i = 1; i < this.samples.length; i++) {
      const a = this.samples[i - 1], b = this.samples[i];
      points.push({time: b.time, rate: (b.tokens - a.tokens) / (b.time - a.time)});
    }
    const most = Math.max(1, ...points.map((p) => p.rate));
    const place = ({time, rate}) =>
      `${(WIDTH * (1 - (now - time) / SECONDS)).toFixed(1)},${(HEIGHT - 1 - (HEIGHT - 4) * rate / most).toFixed(1)}`;
    const path = points.length ? `M${points.map(place).join('L')}` : '';
    this.line.setAttribute('d', path);
    const first = points.length && (WIDTH * (1 - (now - points[0].time) / SECONDS)).toFixed(1);
    this.area.setAttribute('d', path && `${path}L${WIDTH},${HEIGHT}L${first},${HEIGHT}Z`);
    const last = points.at(-1)?.rate ?? 0;
    const digits = (rate) => number(rate, rate > 0 && rate < 10 ? 1 : 0);
    this.rate.textContent = digits(last);
    const highest = points.length ? Math.max(...points.map((p) => p.rate)) : 0;
    this.most.textContent = `most ${digits(highest)}`;
    this.plot.setAttribute('aria-label', `Tokens a second over the last minute: now ${digits(last)}, most ${digits(highest)}`);
  }

  showSlots(busy, all, slots) {
    this.slots.hidden = all === undefined;
    this.slots.replaceChildren(
      el('div', {class: 'rates'}, el('span', {}, 'Slots'), el('span', {class: 'quiet'}, `${busy} of ${all} busy`)),
      slots.length ? el('ul', {}, slots.slice(0, 64).map((slot) => this.slotItem(slot))) : '');
  }

  slotItem(slot) {
    const prompt = slot.n_prompt_tokens ?? 0, drawn = slot.next_token?.n_decoded ?? 0;
    const done = (slot.n_prompt_tokens_processed ?? 0) + (slot.n_prompt_tokens_cache ?? 0);
    const what = !slot.is_processing ? 'free' : drawn ? `${number(drawn)} tokens written` : `prompt ${number(done)} of ${number(prompt)}`;
    const label = `Slot ${slot.id}: ${what}`;
    return el('li', {title: label}, bar([[(done + drawn) / slot.n_ctx, 'used']], label));
  }
}
