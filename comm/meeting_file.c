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
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/durable.h"

static const char title[] = "maskrcnn rendezvous 2", any_title[] = "maskrcnn rendezvous ";

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

MeetingFile meeting_file_here(int port) {
  MeetingFile m = {0};
  random_bytes(m.secret);
  m.at[m.addresses++] = (Address){"127.0.0.1", port}; // for ranks on this host
  struct ifaddrs *all = NULL;
  if (getifaddrs(&all)) all = NULL;
  for (struct ifaddrs *each = all; each; each = each->ifa_next) add_address(&m, each, AF_INET, port);
  for (struct ifaddrs *each = all; each; each = each->ifa_next) add_address(&m, each, AF_INET6, port);
  if (all) freeifaddrs(all);
  return m;
}

void meeting_file_key(const MeetingFile *m, Launch *l) {
  Hmac h;
  hmac_begin(&h, l->key, sizeof l->key);
  hmac_add(&h, m->secret, sizeof m->secret);
  hmac_end(&h, l->key);
  l->secret = true;
}

// ---- whose it is ----------------------------------------------------------------------------------------------------

bool meeting_folder_is_safe(const char *path, Err *err) {
  const char *slash = strrchr(path, '/');
  char *folder = slash ? xasprintf("%.*s", slash == path ? 1 : (int)(slash - path), path) : xstrdup(".");
  struct stat st;
  const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  bool ok = fd >= 0 && !fstat(fd, &st);
  if (!ok) err_set(err, "cannot open the folder of %s: %s", path, strerror(errno));
  if (ok && st.st_uid != geteuid() && st.st_uid != 0)
    ok = err_set(err, "--rendezvous file:%s: its folder belongs to another user (%ld): choose one of your own", path,
                 (long)st.st_uid);
  if (ok && (st.st_mode & (S_IWGRP | S_IWOTH)) && !(st.st_mode & S_ISVTX))
    ok = err_set(err, "--rendezvous file:%s: other users may write to its folder: chmod go-w %s, or choose another",
                 path, folder);
  if (fd >= 0) close(fd);
  free(folder);
  return ok;
}

// Opens a regular file, without following a link and without waiting for a pipe. NULL with errno.
static FILE *open_regular(const char *path, struct stat *st) {
  const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  FILE *f = fd >= 0 && !fstat(fd, st) && S_ISREG(st->st_mode) ? fdopen(fd, "r") : NULL;
  if (f) return f;
  const int reason = fd < 0 ? errno : EINVAL;
  if (fd >= 0) close(fd);
  errno = reason;
  return NULL;
}

// ---- writing --------------------------------------------------------------------------------------------------------

// Whether the path may be replaced: a rendezvous file, an empty file, or no file.
static bool may_replace(const char *path, Err *err) {
  struct stat st;
  char text[sizeof any_title] = "";
  FILE *f = open_regular(path, &st);
  if (!f && errno == ENOENT) return true;
  if (!f) return err_set(err, "cannot write %s: it exists and cannot be read as a file", path);
  size_t n = fread(text, 1, sizeof any_title - 1, f);
  fclose(f);
  return !n || !strcmp(text, any_title) ||
         err_set(
             err,
             "%s exists and is not a rendezvous file, so it is not overwritten: choose another --rendezvous file:PATH",
             path);
}

static bool write_all(const MeetingFile *m, const char *path) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
  if (!f) return false;
  char secret[NONCE_TEXT];
  hex_of(m->secret, secret);
  fprintf(f, "%s\n%s\n", title, secret);
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
  if (!meeting_folder_is_safe(path, err) || !may_replace(path, err)) return false;
  char name[NONCE_TEXT];
  nonce_draw(name);
  char *temporary = xasprintf("%s.%.8s", path, name);
  bool ok = write_all(m, temporary) && durable_rename(temporary, path);
  if (!ok) {
    err_set(err, "cannot write %s: %s", path, strerror(errno));
    unlink(temporary);
  }
  free(temporary);
  return ok;
}

// ---- reading --------------------------------------------------------------------------------------------------------

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
  if (!copy_line(&rest, line, sizeof line) || !hex_parse(m->secret, line)) return false;
  while (m->addresses < MAX_ADDRESSES && copy_line(&rest, line, sizeof line))
    if (!address_parse(&m->at[m->addresses++], line, NULL)) return false;
  return m->addresses;
}

bool meeting_file_read(MeetingFile *m, const char *path, Err *err) {
  char text[1 << 14];
  struct stat st;
  FILE *f = open_regular(path, &st);
  if (!f) return err_set(err, "cannot read %s: %s", path, errno == EINVAL ? "it is not a file" : strerror(errno));
  const bool own = st.st_uid == geteuid() && !(st.st_mode & 077) && st.st_nlink == 1;
  size_t n = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  if (!own)
    return err_set(
        err, "%s may be read or written by others (owner %ld, mode %04o, %ld links), so it is not trusted; remove it",
        path, (long)st.st_uid, (unsigned)st.st_mode & 07777, (long)st.st_nlink);
  text[n] = '\0';
  return parse(m, text) || err_set(err, "%s is not a rendezvous file", path);
}

void meeting_file_remove(const MeetingFile *m, const char *path) {
  MeetingFile there;
  if (meeting_file_read(&there, path, NULL) && !memcmp(there.secret, m->secret, sizeof m->secret)) unlink(path);
}
