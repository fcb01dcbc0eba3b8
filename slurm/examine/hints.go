package examine

// ShowNodes is what a person types to see which partitions have free nodes.
const ShowNodes = "sinfo"

// CancelNamed is what a person types to end a job by its name.
func CancelNamed(name string) string { return "scancel --name " + name }

// CancelID is what a person types to end a job by its id.
func CancelID(id string) string { return "scancel " + id }
