// strftime for a wall clock without time zone, with English names, as Python's datetime.strftime gives it with glibc.
#include "jinja/run.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char *const DAYS[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
static const char *const MONTHS[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};

typedef struct {
  int weekday, yearday; // Sunday is 0; 1 January is 0
} place;

static bool leap(int year) {
  return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static place locate(const st_template_time *t) {
  static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  int month = t->month >= 1 && t->month <= 12 ? t->month : 1;
  int yearday = before[month - 1] + t->day - 1 + (month > 2 && leap(t->year));
  long y = t->year - 1;
  long days = y * 365 + y / 4 - y / 100 + y / 400 + yearday; // since Monday, 1 January of year 1
  return (place){(int)((days + 1) % 7), yearday};
}

static int iso_weeks(int year) {
  place p = locate(&(st_template_time){.year = year, .month = 1, .day = 1});
  return p.weekday == 4 || (p.weekday == 3 && leap(year)) ? 53 : 52;
}

static int iso_week(const st_template_time *t, place p, int *year) {
  int monday_based = (p.weekday + 6) % 7, week = (p.yearday - monday_based + 10) / 7;
  *year = t->year;
  if (week < 1) return iso_weeks(--*year);
  if (week > iso_weeks(t->year)) {
    ++*year;
    return 1;
  }
  return week;
}

// A number of `width` digits padded with `pad`; the flag overrides the padding ('-': none).
static void number(char *text, size_t size, int value, int width, char pad, char flag) {
  if (flag == '-') width = 0;
  if (flag == '_') pad = ' ';
  if (flag == '0') pad = '0';
  snprintf(text, size, pad == '0' ? "%0*d" : "%*d", width, value);
}

static bool numeric(const st_template_time *t, place p, char c, char flag, char *text, size_t size) {
  int hour12 = t->hour % 12 ? t->hour % 12 : 12, year, week = iso_week(t, p, &year);
  int monday_based = (p.weekday + 6) % 7;
  switch (c) {
  case 'd': number(text, size, t->day, 2, '0', flag); return true;
  case 'e': number(text, size, t->day, 2, ' ', flag); return true;
  case 'm': number(text, size, t->month, 2, '0', flag); return true;
  case 'y': number(text, size, t->year % 100, 2, '0', flag); return true;
  case 'Y': number(text, size, t->year, 0, '0', flag); return true;
  case 'C': number(text, size, t->year / 100, 2, '0', flag); return true;
  case 'G': number(text, size, year, 0, '0', flag); return true;
  case 'g': number(text, size, year % 100, 2, '0', flag); return true;
  case 'H': number(text, size, t->hour, 2, '0', flag); return true;
  case 'k': number(text, size, t->hour, 2, ' ', flag); return true;
  case 'I': number(text, size, hour12, 2, '0', flag); return true;
  case 'l': number(text, size, hour12, 2, ' ', flag); return true;
  case 'M': number(text, size, t->minute, 2, '0', flag); return true;
  case 'S': number(text, size, t->second, 2, '0', flag); return true;
  case 'j': number(text, size, p.yearday + 1, 3, '0', flag); return true;
  case 'U': number(text, size, (p.yearday + 7 - p.weekday) / 7, 2, '0', flag); return true;
  case 'W': number(text, size, (p.yearday + 7 - monday_based) / 7, 2, '0', flag); return true;
  case 'V': number(text, size, week, 2, '0', flag); return true;
  case 'u': number(text, size, p.weekday ? p.weekday : 7, 1, '0', flag); return true;
  case 'w': number(text, size, p.weekday, 1, '0', flag); return true;
  default: return false;
  }
}

static bool named(const st_template_time *t, place p, char c, char *text, size_t size) {
  const char *month = MONTHS[t->month >= 1 && t->month <= 12 ? t->month - 1 : 0], *day = DAYS[p.weekday];
  switch (c) {
  case 'a': snprintf(text, size, "%.3s", day); return true;
  case 'A': snprintf(text, size, "%s", day); return true;
  case 'b':
  case 'h': snprintf(text, size, "%.3s", month); return true;
  case 'B': snprintf(text, size, "%s", month); return true;
  case 'p': snprintf(text, size, "%s", t->hour < 12 ? "AM" : "PM"); return true;
  case 'P': snprintf(text, size, "%s", t->hour < 12 ? "am" : "pm"); return true;
  case 'f': snprintf(text, size, "%06d", t->microsecond); return true;
  case 'n': snprintf(text, size, "\n"); return true;
  case 't': snprintf(text, size, "\t"); return true;
  case '%': snprintf(text, size, "%%"); return true;
  case 'z':
  case 'Z': text[0] = '\0'; return true; // the clock knows no zone
  default: return false;
  }
}

static const char *compound(char c) {
  switch (c) {
  case 'c': return "%a %b %e %H:%M:%S %Y";
  case 'D':
  case 'x': return "%m/%d/%y";
  case 'F': return "%Y-%m-%d";
  case 'T':
  case 'X': return "%H:%M:%S";
  case 'R': return "%H:%M";
  case 'r': return "%I:%M:%S %p";
  default: return NULL;
  }
}

// '^' asks for capitals, '#' for the other case, which of all names only AM and PM have.
static void change_case(char *text, char c, char flag) {
  if (c == 'P' || (flag != '^' && flag != '#')) return;
  for (char *q = text; *q; q++) {
    *q = (char)(c == 'p' && flag == '#' ? tolower((unsigned char)*q) : toupper((unsigned char)*q));
  }
}

static bool put(st_jinja_run *run, st_jinja_builder *b, const st_jinja_string *format) {
  const st_template_time *t = &run->now;
  place p = locate(t);
  for (size_t i = 0; i < format->length; i++) {
    char text[64], c = format->data[i], flag = 0;
    if (c != '%') {
      if (!st_jinja_put_part(run, b, format, i, i + 1)) return false;
      continue;
    }
    size_t begin = i++;
    while (i < format->length && format->data[i] && strchr("-_0^#", format->data[i])) flag = format->data[i++];
    if (i >= format->length) return st_jinja_put_part(run, b, format, begin, format->length);
    c = format->data[i];
    const char *parts = compound(c);
    if (parts) {
      if (!put(run, b, &(st_jinja_string){.data = parts, .length = strlen(parts)})) return false;
      continue;
    }
    if (!numeric(t, p, c, flag, text, sizeof text) && !named(t, p, c, text, sizeof text)) {
      return st_jinja_fail_unsupported(run, "strftime_now with '%%%c'", c);
    }
    change_case(text, c, flag);
    if (!st_jinja_put_text(run, b, text)) return false;
  }
  return true;
}

bool st_jinja_strftime(st_jinja_run *run, const st_jinja_string *format, st_jinja_value *out) {
  st_jinja_builder b = {0};
  return put(run, &b, format) && st_jinja_finish(run, &b, false, out);
}
