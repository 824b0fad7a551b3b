// strftime for a wall clock without time zone, with English names, as Python's datetime.strftime formats it with glibc:
// dates and times of day, which are what published templates ask for.
#include "jinja/run.h"

#include <stdio.h>
#include <string.h>

static const char *const DAYS[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
static const char *const MONTHS[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};

static bool leap(int year) {
  return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static void locate(const st_template_time *t, int *weekday, int *yearday) {
  static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  int month = t->month >= 1 && t->month <= 12 ? t->month : 1;
  long y = t->year - 1;
  *yearday = before[month - 1] + t->day - 1 + (month > 2 && leap(t->year));
  *weekday = (int)((y * 365 + y / 4 - y / 100 + y / 400 + *yearday + 1) % 7); // 1 January of year 1 was a Monday
}

// Two digits, or three for the day of the year; the flag '-' omits leading zeros.
static bool numeric(const st_template_time *t, int yearday, char c, bool bare, char *text, size_t size) {
  int value, width = 2;
  switch (c) {
  case 'd': value = t->day; break;
  case 'm': value = t->month; break;
  case 'y': value = t->year % 100; break;
  case 'Y': value = t->year, width = 1; break;
  case 'H': value = t->hour; break;
  case 'I': value = t->hour % 12 ? t->hour % 12 : 12; break;
  case 'M': value = t->minute; break;
  case 'S': value = t->second; break;
  case 'j': value = yearday + 1, width = 3; break;
  default: return false;
  }
  snprintf(text, size, "%0*d", bare ? 1 : width, value);
  return true;
}

static bool named(const st_template_time *t, int weekday, char c, char *text, size_t size) {
  const char *month = MONTHS[t->month >= 1 && t->month <= 12 ? t->month - 1 : 0], *day = DAYS[weekday];
  switch (c) {
  case 'a': snprintf(text, size, "%.3s", day); return true;
  case 'A': snprintf(text, size, "%s", day); return true;
  case 'b': snprintf(text, size, "%.3s", month); return true;
  case 'B': snprintf(text, size, "%s", month); return true;
  case 'p': snprintf(text, size, "%s", t->hour < 12 ? "AM" : "PM"); return true;
  case '%': snprintf(text, size, "%%"); return true;
  default: return false;
  }
}

bool st_jinja_strftime(st_jinja_run *run, const st_jinja_string *format, st_jinja_value *out) {
  const st_template_time *t = &run->now;
  st_jinja_builder b = {0};
  int weekday, yearday;
  locate(t, &weekday, &yearday);
  for (size_t i = 0; i < format->length; i++) {
    char text[32];
    if (format->data[i] != '%') {
      if (!st_jinja_put_part(run, &b, format, i, i + 1)) return false;
      continue;
    }
    bool bare = ++i < format->length && format->data[i] == '-';
    i += bare;
    char c = i < format->length ? format->data[i] : 0;
    if (!numeric(t, yearday, c, bare, text, sizeof text) && (bare || !named(t, weekday, c, text, sizeof text))) {
      return st_jinja_fail_unsupported(run, "strftime_now: '%%%s%c' is not supported; expected one of %s",
                                       bare ? "-" : "", c && (c & 0x80) == 0 ? c : ' ', "aAbBdHIjmMpSyY%");
    }
    if (!st_jinja_put_text(run, &b, text)) return false;
  }
  return st_jinja_finish(run, &b, false, out);
}
