/* Records what the outlast command writes, and kills it at a chosen moment: for tests of crashes.
 *
 * Loaded with LD_PRELOAD. It acts only in a process whose program is called `outlast`, and only on files below
 * OUTLAST_HOME and on stdout; every other process and file is left alone and not counted.
 *
 *   RECORDER_LOG=PATH          appends every call that changes a file, writes to stdout or makes something durable
 *   RECORDER_KILL=N[,before|after]  the N-th counted call is the last: it is (after, the default) or is not carried out
 *   RECORDER_FILES=END[,END]   counted are syncs of files whose names end so (default: sessions.db-wal,sessions.db)
 *   RECORDER_COUNT=all|files   counted is everything that is recorded, or everything of those files
 *   RECORDER_COUNT_FILE=PATH   the number of counted calls, written after each
 *
 * Invariants: one call at a time is carried out and recorded, so that the log has the order in which the files changed;
 * a record is one append. No file of the home is ever opened here: closing it would drop the locks that SQLite holds.
 * The real calls are made as system calls, so nothing has to be looked up.
 * Not here: what a crash leaves of the files (recorder.rs). `-shm` files are memory that is rebuilt, and left out. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum moment { BEFORE, AFTER };

/* What is recorded; recorder.rs knows the same letters. */
enum kind {
    CREATE = 'c',   /* a file came to be */
    WRITE = 'w',    /* data at an offset */
    TRUNCATE = 't', /* the offset is the new length */
    SYNC = 's',
    REMOVE = 'u',
    RENAME = 'r', /* the data is the new name */
    OUTPUT = 'o', /* data on stdout, without a path */
};

/* One call. The path is relative to the home. */
struct call {
    enum kind kind;
    char path[PATH_MAX];
    uint64_t offset;
    const void *data;
    size_t length;
    int kills; /* once it is carried out */
};

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static pid_t recorded; /* a child between fork and exec is not recorded */
static int ended;
static pthread_t ended_by;
static int log_file = -1, count_file = -1;
static const char *files = "sessions.db-wal,sessions.db";
static int count_all, count_files;
static unsigned long counted, kill_at;
static enum moment kill_moment = AFTER;

/* --- settings --- */

static int ends_with(const char *text, size_t length, const char *end, size_t end_length) {
    return length >= end_length && memcmp(text + length - end_length, end, end_length) == 0;
}

static int open_for_appending(const char *variable, int flags) {
    const char *path = getenv(variable);
    if (path == NULL) return -1;
    return syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
}

__attribute__((constructor)) static void begin(void) {
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program);
    if (length < 0 || !ends_with(program, length, "/outlast", strlen("/outlast"))) return;
    log_file = open_for_appending("RECORDER_LOG", O_APPEND);
    count_file = open_for_appending("RECORDER_COUNT_FILE", O_TRUNC);
    if (getenv("RECORDER_FILES") != NULL) files = getenv("RECORDER_FILES");
    const char *count = getenv("RECORDER_COUNT");
    count_all = count != NULL && strcmp(count, "all") == 0;
    count_files = count != NULL && strcmp(count, "files") == 0;
    const char *kill_setting = getenv("RECORDER_KILL");
    if (kill_setting != NULL) {
        char *rest;
        kill_at = strtoul(kill_setting, &rest, 10);
        if (strcmp(rest, ",before") == 0) kill_moment = BEFORE;
    }
    recorded = getpid();
}

/* Other threads may be in the middle of a call. The one that is under way is recorded, further ones are not carried out. */
__attribute__((destructor)) static void end(void) {
    if (recorded == 0 || getpid() != recorded) return;
    pthread_mutex_lock(&one_at_a_time);
    ended_by = pthread_self();
    ended = 1;
}

/* --- which file --- */

/* The home as the kernel names it, once it is there. */
static const char *home(void) {
    static char resolved[PATH_MAX];
    const char *named = getenv("OUTLAST_HOME");
    if (resolved[0] != 0) return resolved;
    if (named == NULL || realpath(named, resolved) == NULL) {
        resolved[0] = 0;
        return NULL;
    }
    return resolved;
}

/* Whether a full path is one of a file to record; then `path` is what it is called within the home. */
static int within_home(const char *full, char *path) {
    const char *folder = home();
    if (folder == NULL) return 0;
    size_t length = strlen(folder), full_length = strlen(full);
    if (strncmp(full, folder, length) != 0 || (full[length] != '/' && full[length] != 0)) return 0;
    if (ends_with(full, full_length, "-shm", 4)) return 0;
    if (ends_with(full, full_length, " (deleted)", strlen(" (deleted)"))) return 0;
    strcpy(path, full[length] == '/' ? full + length + 1 : "");
    return 1;
}

/* The same for an open file. The kernel's own name follows a file that is renamed. */
static int open_within_home(int fd, char *path) {
    char link[64], full[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, full, sizeof full - 1);
    if (length < 0) return 0;
    full[length] = 0;
    return within_home(full, path);
}

/* The same for a name that need not exist: its folder is resolved, its last part is not. */
static int named_within_home(int folder_fd, const char *name, char *path) {
    char start[64] = "./", folder[PATH_MAX], full[2 * PATH_MAX];
    const char *slash = strrchr(name, '/'), *last = slash == NULL ? name : slash + 1;
    if (name[0] == '/') start[0] = 0;
    else if (folder_fd != AT_FDCWD) snprintf(start, sizeof start, "/proc/self/fd/%d/", folder_fd);
    if (snprintf(full, sizeof full, "%s%.*s", start, (int)(last - name), name) >= PATH_MAX) return 0;
    if (realpath(full, folder) == NULL) return 0;
    if (snprintf(full, sizeof full, "%s/%s", folder, last) >= PATH_MAX) return 0;
    return within_home(full, path);
}

/* --- counting and recording --- */

static int is_counted(const struct call *call) {
    if (count_all) return 1;
    if (call->kind != SYNC && !count_files) return 0;
    for (const char *end = files; *end != 0;) {
        size_t length = strcspn(end, ",");
        if (length > 0 && ends_with(call->path, strlen(call->path), end, length)) return 1;
        end += length + (end[length] == ',');
    }
    return 0;
}

/* The mutex is held, so no other call of this process is carried out any more. */
static void die(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

static void write_count(void) {
    char text[32];
    int length = snprintf(text, sizeof text, "%lu\n", counted);
    if (count_file >= 0) syscall(SYS_pwrite64, count_file, text, length, 0);
}

/* Before a call is carried out. What holds the mutex afterwards ends with `finish`. */
static void start(struct call *call) {
    if (!is_counted(call)) return;
    counted++;
    write_count();
    call->kills = counted == kill_at;
    if (call->kills && kill_moment == BEFORE) die();
}

static void record(const struct call *call) {
    size_t path_length = strlen(call->path);
    uint64_t header[4] = {call->kind, path_length, call->offset, call->length};
    size_t length = sizeof header + path_length + call->length;
    char *bytes = malloc(length);
    if (log_file < 0 || bytes == NULL) {
        free(bytes);
        return;
    }
    memcpy(bytes, header, sizeof header);
    memcpy(bytes + sizeof header, call->path, path_length);
    if (call->length > 0) memcpy(bytes + sizeof header + path_length, call->data, call->length);
    syscall(SYS_write, log_file, bytes, length);
    free(bytes);
}

/* After a call: a call that failed changed nothing. The caller sees the errno of its own call. */
static void finish(struct call *call, long result) {
    int error = errno;
    if (result >= 0) record(call);
    if (call->kills) die();
    pthread_mutex_unlock(&one_at_a_time);
    errno = error;
}

/* Whether this process is one to record. If so, the mutex is held. */
static int enter(struct call *call, enum kind kind) {
    if (recorded == 0 || getpid() != recorded) return 0;
    if (ended && pthread_equal(ended_by, pthread_self())) return 0;
    pthread_mutex_lock(&one_at_a_time);
    memset(call, 0, sizeof *call);
    call->kind = kind;
    return 1;
}

static int leave(void) {
    pthread_mutex_unlock(&one_at_a_time);
    return 0;
}

static int enter_file(struct call *call, enum kind kind, int fd) {
    int error = errno;
    if (!enter(call, kind)) return 0;
    int found = open_within_home(fd, call->path);
    if (!found && kind == WRITE && fd == STDOUT_FILENO) {
        call->kind = OUTPUT;
        found = 1;
    }
    errno = error;
    return found ? 1 : leave();
}

/* A file by its name, which must be there (or must not). */
static int enter_name(struct call *call, enum kind kind, int folder, const char *name) {
    int error = errno;
    if (name == NULL || !enter(call, kind)) return 0;
    struct stat found;
    int exists = syscall(SYS_newfstatat, folder, name, &found, AT_SYMLINK_NOFOLLOW) == 0;
    int wanted = exists == (kind != CREATE) && named_within_home(folder, name, call->path);
    errno = error;
    return wanted ? 1 : leave();
}

/* --- the calls --- */

static ssize_t recorded_write(int fd, const void *data, size_t length) {
    struct call call;
    if (!enter_file(&call, WRITE, fd)) return syscall(SYS_write, fd, data, length);
    start(&call);
    ssize_t written = syscall(SYS_write, fd, data, length);
    call.data = data;
    call.length = written > 0 ? written : 0;
    /* Afterwards, because what is appended begins where the file ended then. */
    if (written > 0 && call.kind == WRITE) call.offset = syscall(SYS_lseek, fd, 0, SEEK_CUR) - written;
    finish(&call, written);
    return written;
}

static ssize_t recorded_pwrite(int fd, const void *data, size_t length, off_t offset) {
    struct call call;
    if (!enter_file(&call, WRITE, fd)) return syscall(SYS_pwrite64, fd, data, length, offset);
    call.offset = offset;
    start(&call);
    ssize_t written = syscall(SYS_pwrite64, fd, data, length, offset);
    call.data = data;
    call.length = written > 0 ? written : 0;
    finish(&call, written);
    return written;
}

static int recorded_truncate(int fd, off_t length) {
    struct call call;
    if (!enter_file(&call, TRUNCATE, fd)) return syscall(SYS_ftruncate, fd, length);
    call.offset = length;
    start(&call);
    int result = syscall(SYS_ftruncate, fd, length);
    finish(&call, result);
    return result;
}

static int recorded_sync(int fd, long number) {
    struct call call;
    if (!enter_file(&call, SYNC, fd)) return syscall(number, fd);
    start(&call);
    int result = syscall(number, fd);
    finish(&call, result);
    return result;
}

/* Opening changes something when it makes a file or empties one. */
static int recorded_open(int folder, const char *name, int flags, mode_t mode) {
    struct call call;
    int changes = (flags & O_CREAT && enter_name(&call, CREATE, folder, name)) ||
                  (flags & O_TRUNC && enter_name(&call, TRUNCATE, folder, name));
    if (!changes) return syscall(SYS_openat, folder, name, flags, mode);
    start(&call);
    int fd = syscall(SYS_openat, folder, name, flags, mode);
    finish(&call, fd);
    return fd;
}

static int recorded_remove(int folder, const char *name, int flags) {
    struct call call;
    if (flags & AT_REMOVEDIR || !enter_name(&call, REMOVE, folder, name))
        return syscall(SYS_unlinkat, folder, name, flags);
    start(&call);
    int result = syscall(SYS_unlinkat, folder, name, flags);
    finish(&call, result);
    return result;
}

int rename(const char *from, const char *to) {
    struct call call;
    char new_name[PATH_MAX];
    if (!enter_name(&call, RENAME, AT_FDCWD, from))
        return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    /* What leaves the home is gone. */
    if (named_within_home(AT_FDCWD, to, new_name)) {
        call.data = new_name;
        call.length = strlen(new_name);
    } else {
        call.kind = REMOVE;
    }
    start(&call);
    int result = syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    finish(&call, result);
    return result;
}

/* --- the names that the calls go by --- */

ssize_t write(int fd, const void *data, size_t length) {
    return recorded_write(fd, data, length);
}
ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) {
    return recorded_pwrite(fd, data, length, offset);
}
ssize_t pwrite64(int fd, const void *data, size_t length, off_t offset) {
    return recorded_pwrite(fd, data, length, offset);
}
int ftruncate(int fd, off_t length) { return recorded_truncate(fd, length); }
int ftruncate64(int fd, off_t length) { return recorded_truncate(fd, length); }
int fsync(int fd) { return recorded_sync(fd, SYS_fsync); }
int fdatasync(int fd) { return recorded_sync(fd, SYS_fdatasync); }
int unlink(const char *name) { return recorded_remove(AT_FDCWD, name, 0); }
int unlinkat(int folder, const char *name, int flags) { return recorded_remove(folder, name, flags); }

/* Only the first piece is written: whoever calls has to be ready for that, and goes on with the next. */
ssize_t writev(int fd, const struct iovec *pieces, int count) {
    struct call call;
    if (!enter_file(&call, WRITE, fd)) return syscall(SYS_writev, fd, pieces, count);
    leave();
    for (int place = 0; place < count; place++)
        if (pieces[place].iov_len > 0) return recorded_write(fd, pieces[place].iov_base, pieces[place].iov_len);
    return 0;
}

#define MODE(flags, mode)                                              \
    mode_t mode = 0;                                                   \
    if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) {     \
        va_list rest;                                                  \
        va_start(rest, flags);                                         \
        mode = va_arg(rest, mode_t);                                   \
        va_end(rest);                                                  \
    }

int open(const char *name, int flags, ...) {
    MODE(flags, mode)
    return recorded_open(AT_FDCWD, name, flags, mode);
}
int open64(const char *name, int flags, ...) {
    MODE(flags, mode)
    return recorded_open(AT_FDCWD, name, flags | O_LARGEFILE, mode);
}
int openat(int folder, const char *name, int flags, ...) {
    MODE(flags, mode)
    return recorded_open(folder, name, flags, mode);
}
int openat64(int folder, const char *name, int flags, ...) {
    MODE(flags, mode)
    return recorded_open(folder, name, flags | O_LARGEFILE, mode);
}
