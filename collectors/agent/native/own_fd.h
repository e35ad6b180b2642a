/* Descriptors of ours, known by what they are and not by their number alone: a trainer may close every
 * descriptor there is and open files of its own under the same numbers. */
#ifndef BRRR_OWN_FD_H
#define BRRR_OWN_FD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct own_fd {
    atomic_int fd; /* -1: none */
    _Atomic uint64_t device, inode;
};

/* Takes over `fd`, under a high number that loops over the low ones miss. */
void own_fd_keep(struct own_fd *own, int fd);

/* The number still means the descriptor it was given to. False for none. Keeps errno. */
bool own_fd_holds(const struct own_fd *own);

/* Closes it, unless the number has become somebody else's; none is left. */
void own_fd_close(struct own_fd *own);

#endif
