// Catches a missing or old NCCL that is used anyway, and NCCL errors that hang a run.
//
// How NCCL is found, refused and its errors reported; all tests but the first use a stub.
#include "base/alloc.h"
#include "base/clock.h"
#include "comm/nccl.h"
#include "test/harness/child.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

// The system's own, where it has one.
TEST(nccl_of_this_machine) {
  unsetenv("MASKRCNN_NCCL");
  Nccl nccl;
  Err err;
  if (nccl_load(&nccl, &err)) {
    EXPECT(nccl.version >= NCCL_OLDEST && nccl.library && nccl.AllReduce && nccl.Broadcast);
    return;
  }
  if (strstr(err.msg, "too old")) return;
  EXPECT(strstr(err.msg, "neither libnccl.so.2 nor libnccl.so can be loaded (libnccl.so.2: cannot open"));
  EXPECT(strstr(err.msg, "apt install libnccl2, or pip install nvidia-nccl-cu13 and MASKRCNN_NCCL="));
}

// In a process of its own: loads the library of that name, the stand-in where it is NULL, in an environment of
// NAME=value, of which the last is NULL, and prints why that fails.
typedef struct Loading {
  const char *library;
  const char *variables[4];
} Loading;

static void load_as(const Loading *l, Nccl *nccl) {
  Err err;
  setenv("MASKRCNN_NCCL", l->library ? l->library : tool("libnccl_stub.so"), 1);
  for (const char *const *v = l->variables; *v; v++) {
    char *name = xstrdup(*v), *value = strchr(name, '=');
    *value = '\0';
    setenv(name, value + 1, 1);
    free(name);
  }
  if (!nccl_load(nccl, &err)) die(EXIT_USAGE, "%s", err.msg);
}

static void only_load(void *context) {
  Nccl nccl;
  load_as(context, &nccl);
}

static void expect_refused(const Loading *l, const char *why) {
  const char *said;
  EXPECT_INT(run_in_child(only_load, (void *)l, &said), 2);
  if (!EXPECT(strstr(said, why) && strchr(said, '\n') == strrchr(said, '\n'))) printf("  said: %s", said);
}

TEST(nccl_missing_or_old) {
  test_limit(60);
  expect_refused(&(Loading){"/nowhere/libnccl.so.2", {NULL}},
                 "MASKRCNN_NCCL: cannot open NCCL: /nowhere/libnccl.so.2: cannot open shared object file: No such "
                 "file or directory; apt install libnccl2, or pip install");
  expect_refused(&(Loading){"Makefile", {NULL}}, "MASKRCNN_NCCL: cannot open NCCL: ");
  expect_refused(&(Loading){"libm.so.6", {NULL}},
                 "libm.so.6 lacks the function ncclGetVersion and cannot be used as NCCL: ");
  expect_refused(&(Loading){NULL, {"NCCL_STUB_VERSION=21602"}}, "NCCL 2.16.2 (");
  expect_refused(&(Loading){NULL, {"NCCL_STUB_VERSION=21602"}}, ") is too old: 2.17 or newer is needed: apt install");
  expect_refused(&(Loading){NULL, {"NCCL_STUB_VERSION=2804"}}, "NCCL 2.8.4 (");
  const char *said;
  EXPECT_INT(run_in_child(only_load, &(Loading){NULL, {"NCCL_STUB_VERSION=21700"}}, &said), 0);
  EXPECT_STR(said, "");
}

// ---- calls that fail ------------------------------------------------------------------------------------------------

static void begin_alone(Nccl *nccl) {
  NcclId id;
  Err err;
  if (!nccl_id(nccl, &id, &err) || !nccl_begin(nccl, &id, 0, 1, 8, &err)) die(EXIT_USAGE, "%s", err.msg);
}

static void two_reductions(void *context) {
  Nccl nccl;
  load_as(context, &nccl);
  begin_alone(&nccl);
  float p = 3;
  for (int i = 0; i < 2; i++)
    nccl_check(&nccl, nccl.AllReduce(&p, &p, 1, NCCL_FLOAT32, NCCL_AVG, nccl.comm, NULL), "AllReduce");
  if (p != 3) die(EXIT_RUN, "the mean over one rank is %g", p);
  nccl_end(&nccl);
}

static void expect_ended(const Loading *l, int code, const char *text) {
  const char *said;
  EXPECT_INT(run_in_child(two_reductions, (void *)l, &said), code);
  if (!EXPECT(strstr(said, text))) printf("  said: %s", said);
}

TEST(nccl_failing_calls) {
  test_limit(60);
  expect_ended(&(Loading){NULL, {NULL}}, 0, "");
  expect_ended(&(Loading){NULL, {"NCCL_STUB_FAULT=GetUniqueId:1:3"}}, 2,
               ": NCCL: ncclGetUniqueId: internal error; set NCCL_DEBUG=INFO for details\n");
  expect_ended(&(Loading){NULL, {"NCCL_STUB_FAULT=CommInitRankConfig:1:1", "NCCL_STUB_TEXT=no\nmemory"}}, 2,
               ": NCCL: ncclCommInitRankConfig: unhandled cuda error: no?memory; set NCCL_DEBUG=INFO for details\n");
  expect_ended(&(Loading){NULL, {"NCCL_STUB_FAULT=AllReduce:2:1"}}, 1, ": NCCL: ncclAllReduce: unhandled cuda error; ");
  expect_ended(&(Loading){NULL, {"NCCL_STUB_FAULT=CommDestroy:1:3"}}, 1, ": NCCL: ncclCommDestroy: internal error; ");
  expect_ended(&(Loading){NULL,
                          {"NCCL_STUB_FAULT=CommInitRankConfig:1:5",
                           "NCCL_STUB_TEXT=Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000"}},
               2,
               ": two ranks use the same GPU (NCCL: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device "
               "1b000): start one process per GPU of a host");
  expect_ended(&(Loading){NULL,
                          {"NCCL_STUB_FAULT=CommInitRankConfig:1:5",
                           "NCCL_STUB_TEXT=Multiple Ranks are using the same GPU/Partition. Set …"}},
               2, ": two ranks use the same GPU (NCCL: Multiple Ranks are using the same GPU/Partition. Set …): ");
}

// Where a rank ended, its end is to be said: what its end makes NCCL report waits.
TEST_TIER(nccl_remote_errors_wait, 1) {
  test_limit(60);
  const double begin = now_seconds();
  expect_ended(&(Loading){NULL, {"NCCL_STUB_FAULT=AllReduce:1:6"}}, 1,
               ": NCCL: ncclAllReduce: remote process exited or there was a network error; ");
  EXPECT(now_seconds() - begin > 2.5);
}

// ---- asynchronous errors --------------------------------------------------------------------------------------------

static void watch_communicator(void *context) {
  Nccl nccl;
  Err err;
  load_as(context, &nccl);
  begin_alone(&nccl);
  float p = 3;
  for (int look = 0; look < 5; look++) CHECK(nccl_async_ok(&nccl, &err));
  nccl_check(&nccl, nccl.AllReduce(&p, &p, 1, NCCL_FLOAT32, NCCL_AVG, nccl.comm, NULL), "AllReduce");
  CHECK(nccl_async_ok(&nccl, &err) && nccl_async_ok(&nccl, &err));
  if (nccl_async_ok(&nccl, &err)) die(EXIT_USAGE, "a third look finds nothing");
  die(EXIT_RUN, "%s", err.msg);
}

TEST(nccl_async_errors) {
  test_limit(60);
  const char *said;
  EXPECT_INT(
      run_in_child(watch_communicator, &(Loading){NULL, {"NCCL_STUB_FAULT=async:1:1", "NCCL_STUB_TEXT=Xid 79"}}, &said),
      1);
  EXPECT(
      strstr(said, ": NCCL: ncclCommGetAsyncError: unhandled cuda error: Xid 79; set NCCL_DEBUG=INFO for details\n"));
  EXPECT_INT(run_in_child(watch_communicator, &(Loading){NULL, {"NCCL_STUB_FAULT=async:1:7"}}, &said),
             2); // in progress
}
