// A clock that only goes forward.
#ifndef SETUN_BASE_CLOCK_H
#define SETUN_BASE_CLOCK_H

double st_clock_seconds(void);

#endif
