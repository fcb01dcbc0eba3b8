package wire

import "time"

// Operations on files, see [FileRequest].
const (
	FileStat   = "stat"
	FileSpace  = "space"  // of the file system of Path
	FileRead   = "read"   // [Limit] bytes from [Offset] come as [Stdout]
	FileWrite  = "write"  // the content is [Stdin]; whole or not at all
	FileEdit   = "edit"   // Old becomes New
	FileList   = "list"   // the entries of a directory, sorted
	FileSearch = "search" // lines that match a pattern
	FilePack   = "pack"   // a tar stream of Path comes as [Stdout]
	FileUnpack = "unpack" // a tar stream is [Stdin]
)

// FileRequest is an operation on files inside, with the rights of a command.
type FileRequest struct {
	Op   string `json:"op"`
	Path Text   `json:"path"` // relative to the session's directory; "~/" is HOME
	// Offset and Limit bound what is read, in bytes; Limit also bounds the
	// number of entries and matches. 0 is the default of the operation.
	// A negative Offset counts from the end.
	Offset int64 `json:"offset,omitempty"`
	Limit  int64 `json:"limit,omitempty"`
	// Mode is of a file to write; 0 keeps the file's, or 0644 for a new one.
	Mode uint32 `json:"mode,omitempty"`
	// Parents makes missing directories above a file to write.
	Parents bool `json:"parents,omitempty"`
	// Old must stand in the file exactly once, unless All is set.
	Old Text `json:"old,omitempty"`
	New Text `json:"new,omitempty"`
	All bool `json:"all,omitempty"`
	// Pattern is a regular expression (RE2), or with Literal a text; Glob
	// picks files by their names, or by their paths when a slash is in it:
	// *, ?, [abc], {a,b}, and ** for any directories. It is of a listing, too.
	Pattern    Text `json:"pattern,omitempty"`
	Literal    bool `json:"literal,omitempty"`
	IgnoreCase bool `json:"ignore_case,omitempty"`
	Glob       Text `json:"glob,omitempty"`
	// Depth is how far a listing goes down; 0 and 1 are the directory itself.
	Depth int `json:"depth,omitempty"`
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
	FileNoMatch    = "no_match"     // edit: Old is not in the file
	FileAmbiguous  = "many_matches" // edit: Old is in the file more than once
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
	Entries   []FileEntry    `json:"entries,omitempty"`
	Matches   []FileMatch    `json:"matches,omitempty"`
	Count     int            `json:"count,omitempty"` // replacements made; entries packed or unpacked
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
	Path   Text      `json:"path"` // relative to the directory listed
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

// FileMatch is a line that a search has found.
type FileMatch struct {
	Path Text `json:"path"` // relative to the directory searched; of a file, its name
	Line int  `json:"line"` // from 1
	Text Text `json:"text"` // without the line's end; long lines are cut
}
