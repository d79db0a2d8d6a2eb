// Catches control characters that reach the terminal, and output lost on a full disk without an error.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/output.h"
#include "test/harness/test.h"

TEST(output_shows_control_characters_as_question_marks) {
  char *text;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  CHECK(f);
  text_print(f, "%s: %d, ", "a\nb\x1b[2Jc\x7f\r", 3);
  line_print(f, "%s", "Größe\tx");
  CHECK(!fclose(f));
  EXPECT_STR(text, "a?b?[2Jc??: 3, Größe\tx\n");
  free(text);
}

static void redirect(const char *path) {
  int file = open(path, O_WRONLY);
  CHECK(file >= 0 && dup2(file, STDOUT_FILENO) >= 0);
}

// The exit status of a child that writes so much to such a standard output; with `emptied` the disk, when it is
// full, has room again before the end.
static int status_of_writing(const char *path, size_t bytes, bool emptied) {
  fflush(stdout);
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    redirect(path);
    CHECK(freopen("/dev/null", "w", stderr));
    for (size_t i = 0; i < bytes; i++) putchar('.');
    if (emptied) {
      fflush(stdout);
      redirect("/dev/null");
    }
    stdout_close();
    _exit(0);
  }
  int status;
  CHECK(waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(output_that_does_not_arrive_is_a_failure) {
  EXPECT_INT(status_of_writing("/dev/null", 1 << 20, false), 0);
  EXPECT_INT(status_of_writing("/dev/full", 0, false), 0);
  EXPECT_INT(status_of_writing("/dev/full", 1, false), EXIT_RUN); // found at the end
  EXPECT_INT(status_of_writing("/dev/full", 1, true), EXIT_RUN);  // found on the way
}
