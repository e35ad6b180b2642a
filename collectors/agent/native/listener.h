/* A listening Unix socket that only its owner and root can reach. */
#ifndef BRRR_LISTENER_H
#define BRRR_LISTENER_H

#include <stdbool.h>

/* The descriptor, or a negative enum brrr_code with its sentence. Makes the last folder of the path
 * (0700) when it is missing; the socket is 0600 from the start. */
int listener_open(const char *path);

/* The other side is this user, or root. */
bool listener_trusts(int fd);

/* Removes the socket from where listener_open put it, unless another lies there by now. */
void listener_unlink(void);

#endif
