/* Makes every call that the recorder stands before, in OUTLAST_HOME: the test compares what was recorded with the files.
 * It is compiled under the name `outlast`, because the recorder heeds no other program. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Ends the program with the line of what did not go as it must. */
#define MUST(condition) \
    if (!(condition)) exit((fprintf(stderr, "line %d\n", __LINE__), 1))

static void write_all_ways(void) {
    int fd = open("appended", O_WRONLY | O_CREAT | O_APPEND, 0600);
    MUST(write(fd, "one", 3) == 3);
    int same = dup(fd);
    MUST(write(same, "two", 3) == 3);
    struct iovec pieces[] = {{"", 0}, {"three", 5}, {"four", 4}};
    MUST(writev(fd, pieces, 3) == 5);
    MUST(fdatasync(same) == 0);
    MUST(close(fd) == 0 && close(same) == 0);

    fd = open64("placed", O_RDWR | O_CREAT, 0600);
    MUST(write(fd, "0123456789", 10) == 10);
    MUST(lseek(fd, 4, SEEK_SET) == 4 && write(fd, "xx", 2) == 2);
    MUST(pwrite(fd, "yy", 2, 20) == 2 && pwrite64(fd, "z", 1, 0) == 1);
    MUST(ftruncate(fd, 21) == 0 && ftruncate64(fd, 30) == 0 && fsync(fd) == 0);
    MUST(close(fd) == 0);
}

static void name_all_ways(int home) {
    int fd = open("kept", O_WRONLY | O_CREAT | O_EXCL, 0600);
    MUST(close(fd) == 0 && openat(home, "kept", O_WRONLY | O_CREAT | O_EXCL, 0600) < 0);
    fd = openat(home, "further", O_WRONLY | O_CREAT, 0600);
    MUST(close(fd) == 0 && unlinkat(home, "further", 0) == 0);
    fd = open("emptied", O_WRONLY | O_CREAT, 0600);
    MUST(write(fd, "going, gone", 11) == 11 && close(fd) == 0);
    fd = open("emptied", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    MUST(write(fd, "new", 3) == 3);
    MUST(rename("emptied", "kept") == 0);
    /* The open file goes by its new name. */
    MUST(write(fd, "er", 2) == 2 && close(fd) == 0);
    MUST(unlink("missing") != 0 && rename("missing", "anything") != 0);
    fd = open("removed", O_WRONLY | O_CREAT, 0600);
    MUST(unlink("removed") == 0 && write(fd, "to nobody", 9) == 9 && close(fd) == 0);
    fd = open("moved out", O_WRONLY | O_CREAT, 0600);
    MUST(close(fd) == 0 && rename("moved out", "../outside") == 0);
    MUST(fsync(home) == 0);
}

int main(void) {
    MUST(chdir(getenv("OUTLAST_HOME")) == 0);
    int home = open(".", O_RDONLY | O_DIRECTORY);
    write_all_ways();
    name_all_ways(home);
    if (fork() == 0) _exit(write(STDOUT_FILENO, "a child\n", 8) != 8);
    int status;
    MUST(wait(&status) > 0 && status == 0);
    MUST(write(STDOUT_FILENO, "done\n", 5) == 5);
    return 0;
}
