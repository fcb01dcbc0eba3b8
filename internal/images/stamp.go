package images

// Stamp changes when anything about the file at path does, and is "" where that
// cannot be told.
func Stamp(path string) string {
	stamp, _ := fileStamp(path)
	return stamp
}
