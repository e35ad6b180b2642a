/* The socket monitors connect to, and what each of them still has to be sent. Agent's thread only,
 * but for server_clients. */
#ifndef BRRR_SERVER_H
#define BRRR_SERVER_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "outbox.h"
#include "wire.h"

#define CLIENTS 4
#define SERVER_FDS (CLIENTS + 1)

/* 0, or a negative enum brrr_code with its sentence. Any thread, before the agent's starts. */
int server_open(const char *path);

/* Fills `fds` for poll and later acts on them. Returns when to ask again though nothing came; INT64_MAX: never. */
int64_t server_watch(struct pollfd *fds, int64_t now_ns);
void server_serve(const struct pollfd *fds, int64_t now_ns);

/* False: the trainer has closed the socket we listen on. */
bool server_listens(void);

/* Monitors connected now. Any thread. */
int server_clients(void);

/* Sends a filled frame to every monitor, names it may use first. */
void server_broadcast(struct block *block);

/* A frame whose loss is counted as `records`, to all. */
void server_send(uint16_t kind, const void *payload, size_t bytes, uint32_t records);

/* Names, status and the like, to the monitor in `slot` or to all: from a reserve where the outbox is full. */
#define EVERYBODY (-1)
void server_tell(int slot, uint16_t kind, const void *payload, size_t bytes);

/* A span of device time, marked per monitor by what that monitor did not get. */
void server_observed(const struct wire_observed *observed);

/* Records that a full queue kept from some monitor, over all. */
uint64_t server_lost(void);

/* What the monitors want, all together. True: it may be news, as one came, went, or changed its mind. */
bool server_wishes(bool *continuous, uint32_t *allowed);

/* Says goodbye, tries to send what is left for `patience_ms`, closes, removes the socket. */
void server_close(const char *reason, int patience_ms);
void server_forked(void);

#endif
