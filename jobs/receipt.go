package jobs

import "time"

// Receipt is receipt.json: how an attempt was contained, as its runner saw it. It
// is written once: when the container has opened and before the task's command
// begins, or, when it has never opened, at the end with what is known then.
type Receipt struct {
	Version   int       `json:"version"`
	Attempt   string    `json:"attempt"`
	Time      time.Time `json:"time"`
	Node      string    `json:"node"`
	Kernel    string    `json:"kernel,omitempty"`
	Scheduler string    `json:"scheduler"`
	Backend   string    `json:"backend"`
	// Versions are those of the programs that had a part: "berth" (the program on
	// the node, and its commit), the scheduler, and the program of its container.
	Versions map[string]string `json:"versions,omitempty"`
	Program  string            `json:"program,omitempty"` // path of the container program
	// Argv is the command line of the container, Mounts what it has bound, berth's
	// own apart.
	Argv   []string `json:"argv,omitempty"`
	Mounts []Mount  `json:"mounts,omitempty"`
	// Shares is what of the host's own files is seen inside, beside these.
	Shares  []string      `json:"shares,omitempty"`
	Image   *ReceiptImage `json:"image,omitempty"`
	Overlay *OverlayUse   `json:"overlay,omitempty"`
	// Asked is the level of the job's record, Level the one that was reached; ""
	// says that no container was open.
	Asked Level `json:"asked"`
	Level Level `json:"level,omitempty"`
	// Network is the one that it was given; it is left out where that is open.
	Network Network `json:"network,omitzero"`
	// Proof is how that was found out, in words, and Seen what the guest reported.
	Proof []string `json:"proof,omitempty"`
	Seen  *Seen    `json:"seen,omitempty"`
	Ranks int      `json:"ranks,omitempty"` // it is that of the first of so many
	// CheckedOver is what the done commands run over that the task could
	// prepare, see [Spec.CheckedOver].
	CheckedOver string   `json:"checked_over,omitempty"`
	Limits      []Limit  `json:"limits,omitempty"`
	Notes       []string `json:"notes,omitempty"` // as known when it was written
}

// ReceiptImage is the image that was run.
type ReceiptImage struct {
	Given     string `json:"given"` // path, or the name that docker has it by
	Reference string `json:"reference,omitempty"`
	Digest    string `json:"digest,omitempty"` // of the registry's manifest
	Sum       string `json:"sha256,omitempty"` // of the file
	// Used is where it was run from on the node; nil with docker.
	Used *ImageUse `json:"used,omitempty"`
}

// Limit is one limit of a task, and what enforces it.
type Limit struct {
	Name  string `json:"name"` // "memory", "cpus", "time", "disk"
	Value string `json:"value"`
	// By is what enforces it; "" is nothing: it was dropped, or is only measured.
	By string `json:"by,omitempty"`
	// Advisory says that it can be exceeded for a moment.
	Advisory bool   `json:"advisory,omitempty"`
	Why      string `json:"why,omitempty"`
}
