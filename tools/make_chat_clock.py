#!/usr/bin/env python3
"""Writes tests/chat/clock.json: the output of Python's datetime.strftime for each supported directive, for moments at which calendars
are easily got wrong: the days around the turn of each year, leap days, and the hours around noon and midnight.

usage: make_chat_clock.py > tests/chat/clock.json   (with glibc)
"""
import datetime
import json

FORMATS = ["%a %A %b %B %p|%%", "%d %m %y %Y %H %I %M %S %j", "%-d %-m %-y %-H %-I %-M %-S %-j", "", "no directive", "é %d 你"]


def moments():
    for year in range(1996, 2034):
        for month, day in ((1, 1), (1, 3), (1, 4), (12, 28), (12, 31)):
            yield (year, month, day, 9, 5, 7)
    for year in (1900, 2000, 2024, 2100):
        yield (year, 2, 28, 23, 59, 59)
        yield (year, 3, 1, 0, 0, 0)
    yield (2000, 2, 29, 12, 0, 0)
    yield (2024, 2, 29, 13, 30, 1)
    for month in range(1, 13):
        yield (2026, month, 15, month * 2 - 1, month, 59)


def main():
    dates = [[now, [datetime.datetime(*now).strftime(form) for form in FORMATS]] for now in moments()]
    print(json.dumps({"formats": FORMATS, "moments": dates}, ensure_ascii=False, indent=0, separators=(",", ":")))


main()
