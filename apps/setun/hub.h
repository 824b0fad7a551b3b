// The model hub: what it is asked, and with which token.
#ifndef SETUN_APP_HUB_H
#define SETUN_APP_HUB_H

#include "model_files.h"
#include "transfer.h"

typedef struct hub {
  client *client;
  char *token; // NULL: none
} hub;

// `endpoint` NULL: HF_ENDPOINT, or https://huggingface.co. The token is that of HF_TOKEN, or of the file that
// HF_TOKEN_PATH names. False after a report; closed in either case.
bool hub_open(const char *endpoint, int64_t retries, hub *h);
void hub_close(hub *h);
// The files of a repository at a revision, with their checksums; those whose names are not plain are left out, and
// counted. False after a report or a signal.
bool hub_list(const hub *h, const char *repository, const char *revision, file_list *files, size_t *left_out);
// The address of a file. Freed with free. NULL after a report.
char *hub_url(const hub *h, const char *repository, const char *revision, const char *path);
// Repository, revision (as *revision says, where the address does not) and selector of what a user names: "org/name",
// "org/name:word", either with the hub's host before it, or the address of a page or of a file. The texts lie in
// `buffer`. False: it is none of these.
bool hub_parse(const hub *h, const char *word, char buffer[1024], char repository[256], const char **revision,
               const char **selector);

#endif
