// Package aws makes the AWS configuration of one account and region, with the
// behaviour towards errors that an hour-long run needs:
//
//   - what is worth another try is tried again for minutes, with jitter, whatever
//     the SDK would do by itself (it gives a steady 503 up after 0.1 s);
//   - every attempt has a deadline, and so has every call;
//   - a call that is on the wire is finished although the caller was interrupted,
//     since its answer says what has changed; waits end at once;
//   - errors are put into the classes that the run has an exit code for.
//
// The package reads no environment of its own. The SDK's configuration loading
// does, and it is the only thing that does: region, profile, credentials and
// endpoints are found as every AWS tool finds them.
package aws
