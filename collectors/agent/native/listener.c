#include "listener.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent.h"
#include "brrrtop_agent.h"

static struct sockaddr_un address;
static dev_t bound_device;
static ino_t bound_inode;

static int refuse(const char *what, const char *path)
{
    return agent_fail(BRRR_E_SOCKET, "%s %.200s: %s", what, path, strerror(errno));
}

/* Whoever can write in the folder can put another socket in our place. */
static int check_folder(const char *path)
{
    char folder[sizeof address.sun_path];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash == NULL || slash == folder)
        return agent_fail(BRRR_E_SOCKET, "the socket path %.200s has no folder of its own", path);
    *slash = '\0';
    struct stat found;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return refuse("cannot make the folder", folder);
    if (stat(folder, &found) != 0)
        return refuse("cannot look at the folder", folder);
    if (!S_ISDIR(found.st_mode))
        return agent_fail(BRRR_E_SOCKET, "%.200s is not a folder", folder);
    if ((found.st_uid != geteuid() && found.st_uid != 0) || found.st_mode & (S_IWGRP | S_IWOTH))
        return agent_fail(BRRR_E_SOCKET, "others can write in %.200s: use a folder with mode 0700", folder);
    return BRRR_OK;
}

static int clear_the_way(const char *path)
{
    struct stat found;
    if (lstat(path, &found) != 0)
        return errno == ENOENT ? BRRR_OK : refuse("cannot look at", path);
    if (!S_ISSOCK(found.st_mode) || (found.st_uid != geteuid() && geteuid() != 0))
        return agent_fail(BRRR_E_SOCKET, "%.200s is in the way and is not a socket of ours", path);
    return unlink(path) == 0 ? BRRR_OK : refuse("cannot replace the socket", path);
}

int listener_open(const char *path)
{
    if (strlen(path) >= sizeof address.sun_path)
        return agent_fail(BRRR_E_SOCKET, "the socket path is longer than %zu bytes: %.120s",
                          sizeof address.sun_path - 1, path);
    int code = check_folder(path);
    if (code == BRRR_OK)
        code = clear_the_way(path);
    if (code != BRRR_OK)
        return code;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return refuse("no socket for", path);
    /* Before bind, the mode is what the socket's file gets: no moment in which others could connect. */
    fchmod(fd, 0600);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 8) != 0) {
        code = refuse("cannot listen on", path);
        close(fd);
        return code;
    }
    chmod(path, 0600);
    struct stat bound;
    bool known = lstat(path, &bound) == 0;
    bound_device = known ? bound.st_dev : 0;
    bound_inode = known ? bound.st_ino : 0;
    return fd;
}

bool listener_trusts(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
        return false;
    return peer.uid == geteuid() || peer.uid == 0;
}

void listener_unlink(void)
{
    struct stat found;
    if (bound_inode != 0 && lstat(address.sun_path, &found) == 0 && found.st_dev == bound_device &&
        found.st_ino == bound_inode)
        unlink(address.sun_path);
    bound_inode = 0;
}
