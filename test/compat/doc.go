// Package compat has the version of berth before this one and this one use the
// same state directory, keepers, guests and jobs, each what the other has
// begun. The version before is the commit in the file previous; whoever
// publishes a version writes that commit there.
//
// Each script of testdata runs with FIRST and OTHER as the old and the new
// program, and the other way round. OLD and NEW are the programs themselves,
// for `fields`, which compares what both print as JSON.
package compat
