// Downloading the files of one model from the hub to their folder.
#ifndef SETUN_APP_DOWNLOAD_H
#define SETUN_APP_DOWNLOAD_H

#include "hub.h"

typedef struct download download;

// Locks the destination folder. All arguments must outlive the object. NULL after a report or a signal.
download *download_open(const hub *h, const char *repository, const char *revision, const char *folder);
// Adds a file, and checks its existing part: a complete file is not received again. This and the functions below return
// false after a report or a signal.
bool download_add(download *d, const model_file *file);
// Receives what is missing; the files are then complete, but not yet in their places.
bool download_receive(download *d);
// Moves them to their places, `last` after all others.
bool download_finish(download *d, const model_file *last);
void download_free(download *d);

#endif
