// Package workspace gives a task a clone of the user's repository and brings
// what the task changed back as one commit on one new branch.
//
// The steps, in order: [Git.Resolve] reads the user's repository at submit;
// [Git.Prepare] makes the task's work tree beside a git directory of berth's
// own; the container runs; [Git.Collect] turns the work tree into a commit, a
// bundle, a diff and a manifest; [Git.Intake] brings the bundle into the
// user's repository by way of a quarantine; [Cleanup] removes the copies.
//
// What it promises:
//
//   - After the container has had the work tree, git never sees that tree. The
//     files are walked and read by Go inside an [os.Root], symbolic links are
//     read and not followed, and git is fed bytes on its standard input. So no
//     hook, filter, fsmonitor, attribute, nested repository or gitfile that a
//     task plants has anything to act on.
//   - Files travel byte for byte: no line-ending, ident, encoding or filter
//     conversion (Git LFS files are therefore their pointers).
//   - A path that cannot be stored is left out and listed with the reason in
//     [Result.Skipped]; it does not make the rest fail.
//   - In the user's repository one ref is created and objects are added.
//     Nothing else is written there: no FETCH_HEAD, reflog, index,
//     configuration, hook or maintenance.
//
// Git is driven as a program through [Git.Run] with a fixed environment in
// which neither the user's nor the system's configuration is read. When git
// fails, the error is a [*GitError] with the last lines it wrote; conditions a
// person can act on are [*Error] with a hint.
package workspace
