/* Descriptors of ours, known by what they are and not by their number alone: a trainer may close every
 * descriptor there is and open files of its own under the same numbers. */
#ifndef BRRR_OWN_FD_H
#define BRRR_OWN_FD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct own_fd {
    _Atomic uint64_t device, inode;
};

/* Takes over `fd`, under a high number that loops over the low ones miss. Returns that number. */
int own_fd_keep(int fd, struct own_fd *is);

/* The number still means the descriptor it was given to. False for -1. Keeps errno. */
bool own_fd_holds(int fd, const struct own_fd *is);

/* Closes it, unless the number has become somebody else's. */
void own_fd_close(int fd, const struct own_fd *is);

#endif
