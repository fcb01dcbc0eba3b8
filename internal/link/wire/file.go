package wire

import "time"

// Operations on files, see [FileRequest].
const (
	FileStat    = "stat"
	FileSpace   = "space"   // of the file system of Path
	FileRead    = "read"    // [Limit] bytes from [Offset] come as [Stdout]
	FileWrite   = "write"   // the content is [Stdin]; whole or not at all
	FileReplace = "replace" // as write, but only what has the content Was
	FilePack    = "pack"    // a tar stream of Path comes as [Stdout]
	FileUnpack  = "unpack"  // a tar stream is [Stdin]
)

// MaxReplace is the size of the largest file that [FileReplace] replaces.
const MaxReplace = 16 << 20

// FileRequest is an operation on files inside, with the rights of a command.
type FileRequest struct {
	Op   string `json:"op"`
	Path Text   `json:"path"` // relative to the session's directory; "~/" is HOME
	// Offset and Limit bound what is read, in bytes; a Limit of 0 is 1 MiB. A
	// negative Offset counts from the end.
	Offset int64 `json:"offset,omitempty"`
	Limit  int64 `json:"limit,omitempty"`
	// Mode is of a file to write; 0 keeps the file's, or 0644 for a new one.
	Mode uint32 `json:"mode,omitempty"`
	// Parents makes missing directories above a file to write.
	Parents bool `json:"parents,omitempty"`
	// Was is the SHA-256 of the content to replace.
	Was []byte `json:"was,omitempty"`
	// Name is what the top of an unpacked tree is called; "" keeps its name.
	Name Text `json:"name,omitempty"`
}

// Kinds of trouble with a file.
const (
	FileNotFound   = "not_found"
	FileExists     = "exists"
	FileIsDir      = "is_directory"
	FileNotDir     = "not_a_directory"
	FileNotRegular = "not_a_regular_file"
	FilePermission = "permission"
	FileTooLarge   = "too_large"
	FileNoMatch    = "no_match"     // an edit's text is not in the file
	FileAmbiguous  = "many_matches" // an edit's text is in the file more than once
	FileChanged    = "changed"      // replace: the content is another one
	FileInvalid    = "invalid"      // the request makes no sense
	FileNoSpace    = "no_space"
	FileFailed     = "failed" // whatever else
)

// FileResult is what came of a [FileRequest].
type FileResult struct {
	Kind  string `json:"kind,omitempty"` // "" is success
	Error string `json:"error,omitempty"`

	Path      Text           `json:"path,omitempty"` // absolute
	Entry     *FileEntry     `json:"entry,omitempty"`
	Count     int            `json:"count,omitempty"` // entries packed or unpacked
	Bytes     int64          `json:"bytes,omitempty"` // of files, read, written, packed or unpacked
	Truncated bool           `json:"truncated,omitempty"`
	Space     *FileSpaceInfo `json:"space,omitempty"`
	// Notes say what was left out; Incomplete is that something of it could
	// not be read.
	Notes      []string `json:"notes,omitempty"`
	Incomplete bool     `json:"incomplete,omitempty"`
}

// FileEntry is a file or directory as lstat(2) shows it.
type FileEntry struct {
	Path   Text      `json:"path"` // absolute
	Type   string    `json:"type"` // "file", "directory", "symlink", "other"
	Mode   uint32    `json:"mode"` // permission bits
	Size   int64     `json:"size"`
	Time   time.Time `json:"time"`
	Target Text      `json:"target,omitempty"` // of a symlink
}

// FileSpaceInfo is what statfs(2) says of a file system.
type FileSpaceInfo struct {
	Size      int64 `json:"size_bytes"`
	Free      int64 `json:"free_bytes"`           // for this user
	Files     int64 `json:"files,omitempty"`      // inodes; 0 where they are not counted
	FreeFiles int64 `json:"free_files,omitempty"` // not used
}
