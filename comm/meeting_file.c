#include "comm/meeting_file.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/durable.h"

static const char title[] = "maskrcnn rendezvous 1";

static void add_address(MeetingFile *m, const struct ifaddrs *each, int family, int port) {
  if (!each->ifa_addr || each->ifa_addr->sa_family != family || m->addresses == MAX_ADDRESSES) return;
  if (!(each->ifa_flags & IFF_UP) || (each->ifa_flags & IFF_LOOPBACK)) return;
  const socklen_t size = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
  if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)each->ifa_addr)->sin6_addr)) return;
  Address *a = &m->at[m->addresses];
  if (getnameinfo(each->ifa_addr, size, a->host, sizeof a->host, NULL, 0, NI_NUMERICHOST)) return;
  a->port = port;
  m->addresses++;
}

MeetingFile meeting_file_here(const char *token, const char *namespaces, int port) {
  MeetingFile m = {0};
  uint64_t random[2];
  CHECK(getrandom(random, sizeof random, 0) == sizeof random);
  snprintf(m.nonce, sizeof m.nonce, "%016llx%016llx", (unsigned long long)random[0], (unsigned long long)random[1]);
  snprintf(m.token, sizeof m.token, "%s", token);
  snprintf(m.namespaces, sizeof m.namespaces, "%s", namespaces);
  m.at[m.addresses++] = (Address){"127.0.0.1", port}; // for ranks in the same namespaces, which try this address first
  struct ifaddrs *all = NULL;
  if (getifaddrs(&all)) all = NULL;
  for (struct ifaddrs *each = all; each; each = each->ifa_next) add_address(&m, each, AF_INET, port);
  for (struct ifaddrs *each = all; each; each = each->ifa_next) add_address(&m, each, AF_INET6, port);
  if (all) freeifaddrs(all);
  return m;
}

// Whether the path may be replaced: a rendezvous file, an empty file, or no file.
static bool may_replace(const char *path, Err *err) {
  struct stat st;
  if (stat(path, &st)) return errno == ENOENT || err_set(err, "cannot write %s: %s", path, strerror(errno));
  FILE *f = S_ISREG(st.st_mode) ? fopen(path, "r") : NULL; // opening a pipe would block
  if (!f) return err_set(err, "cannot write %s: it exists and cannot be read", path);
  char text[sizeof title] = "";
  size_t n = fread(text, 1, sizeof title - 1, f);
  fclose(f);
  return !n || !strcmp(text, title) ||
         err_set(
             err,
             "%s exists and is not a rendezvous file, so it is not overwritten: choose another --rendezvous file:PATH",
             path);
}

static bool write_all(const MeetingFile *m, const char *path) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
  if (!f) return false;
  fprintf(f, "%s\n%s\n%s\n%s\n", title, m->nonce, m->token, m->namespaces);
  for (int i = 0; i < m->addresses; i++) {
    char at[300];
    address_text(&m->at[i], at, sizeof at);
    fprintf(f, "%s\n", at);
  }
  bool ok = fflush(f) == 0 && durable_sync(fd);
  int reason = errno;
  fclose(f);
  errno = reason;
  return ok;
}

bool meeting_file_write(const MeetingFile *m, const char *path, Err *err) {
  if (!may_replace(path, err)) return false;
  char *temporary = xasprintf("%s.%.8s", path, m->nonce);
  bool ok = write_all(m, temporary) && durable_rename(temporary, path);
  if (!ok) {
    err_set(err, "cannot write %s: %s", path, strerror(errno));
    unlink(temporary);
  }
  free(temporary);
  return ok;
}

static bool copy_line(char **rest, char *out, size_t room) {
  char *text = strsep(rest, "\n");
  if (!text || !*rest || strlen(text) >= room) return false;
  memcpy(out, text, strlen(text) + 1);
  return true;
}

static bool parse(MeetingFile *m, char *rest) {
  char line[300];
  *m = (MeetingFile){0};
  if (!copy_line(&rest, line, sizeof line) || strcmp(line, title) != 0) return false;
  if (!copy_line(&rest, m->nonce, sizeof m->nonce) || !copy_line(&rest, m->token, sizeof m->token)) return false;
  if (!copy_line(&rest, m->namespaces, sizeof m->namespaces)) return false;
  while (m->addresses < MAX_ADDRESSES && copy_line(&rest, line, sizeof line))
    if (!address_parse(&m->at[m->addresses++], line, NULL)) return false;
  return m->addresses && *m->nonce;
}

bool meeting_file_read(MeetingFile *m, const char *path, Err *err) {
  char text[1 << 14];
  struct stat st;
  FILE *f = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? fopen(path, "r") : NULL;
  if (!f) return err_set(err, "cannot read %s", path);
  size_t n = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  text[n] = '\0';
  return parse(m, text) || err_set(err, "%s is not a rendezvous file", path);
}

void meeting_file_remove(const MeetingFile *m, const char *path) {
  MeetingFile there;
  if (meeting_file_read(&there, path, NULL) && !strcmp(there.nonce, m->nonce)) unlink(path);
}
