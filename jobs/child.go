package jobs

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Submit lets a task ask berth for what it may: to tell its progress, and where MaxJobs
// is above 0 to have jobs submitted, which are its children.
type Submit struct {
	MaxJobs int `json:"max_jobs,omitempty"` // in all attempts together, those that failed too; 0 is none
	// MaxCPUTime is how much they ask for together: CPUs times time.
	MaxCPUTime time.Duration `json:"max_cpu_time_ns,omitempty"`
	// Time, Memory and GPUs bound each of them. One that says nothing has this time, the
	// memory of its parent within this bound, and no GPU.
	Time   time.Duration `json:"time_ns,omitempty"`
	Memory Bytes         `json:"memory_bytes,omitempty"` // 0 is no bound
	GPUs   int           `json:"gpus,omitempty"`
	// Partitions are those that one may name, beside its parent's.
	Partitions []string `json:"partitions,omitempty"`
	// Images are those that one may name, beside its parent's.
	Images []ChildImage `json:"images,omitempty"`
	// EndWithParent has those that have not ended cancelled when their parent has.
	EndWithParent bool `json:"end_with_parent,omitempty"`
}

// ChildImage is an image that a task's job may have beside its parent's. It is settled when
// the parent is submitted, but for its name: of a task that is not, that is all.
type ChildImage struct {
	Name string `json:"name"` // as the task file has it, by which a task asks for it
	// Image is what is run; the others are those of [Spec].
	Image       string `json:"image,omitempty"`
	ImageRef    string `json:"image_ref,omitempty"`
	ImageDigest string `json:"image_digest,omitempty"`
	ImageSum    string `json:"image_sum,omitempty"`
	ImageDir    string `json:"image_dir,omitempty"`
}

// MaxChildImages bounds [Submit.Images]: each is fetched when the parent is submitted.
const MaxChildImages = 50

// Jobs reports whether the task may have jobs submitted.
func (s *Submit) Jobs() bool { return s != nil && s.MaxJobs > 0 }

// MaxChildren bounds [Submit.MaxJobs].
const MaxChildren = 1000

// MaxJobScript is how long a job script of a task's may be, in bytes.
const MaxJobScript = 1 << 20

// Child is children/NNNN.json of a job: what its task has asked for, as it was bounded.
// It is made before anything is submitted, and counts whatever comes of that.
type Child struct {
	Version   int       `json:"version"`
	Number    int       `json:"number"`  // from 1, by which the task names it
	Job       string    `json:"job"`     // its id
	Attempt   int       `json:"attempt"` // of the parent, in which it was asked for
	Name      string    `json:"name"`
	Command   Command   `json:"command"`
	Script    string    `json:"script,omitempty"` // on the command's standard input
	Resources Resources `json:"resources"`
	Partition string    `json:"partition,omitempty"`
	After     []After   `json:"after,omitempty"`
	// Network and Allow are its mode and its list, where it asked for a narrower one than
	// its parent's, Scope likewise; empty is its parent's.
	Network string   `json:"network,omitempty"`
	Allow   []string `json:"allow,omitempty"`
	Scope   []string `json:"scope,omitempty"`
	// Image is the name of one of [Submit.Images]; "" is its parent's image.
	Image string `json:"image,omitempty"`
	// Output and Error are files inside, below Dir.
	Output string    `json:"output,omitempty"`
	Error  string    `json:"error,omitempty"`
	Dir    string    `json:"dir,omitempty"`
	Time   time.Time `json:"time"`
}

// CPUTime is what it counts of [Submit.MaxCPUTime].
func (c *Child) CPUTime() time.Duration {
	return time.Duration(max(c.Resources.CPUs, 1)) * c.Resources.Time
}

// Stub is a program of a scheduler's that a task with [Submit] finds on its PATH. It
// sends its words to berth, and a script with them.
type Stub struct {
	Name   string
	Script bool // it reads one: the file that its first word names which is no option, else its standard input
	// Takes are its options, with their dashes, whose value is the next word; NoScript
	// are those with which it reads none.
	Takes, NoScript []string
}

// Stubs reads what a task asks for by the programs of a scheduler, outside of its
// container, and answers as they do. All of it is pure.
type Stubs interface {
	List() []Stub
	// Wish reads the words of one of them, and the script that came with them. What is
	// not on its list is an error of kind [KindUsage].
	Wish(stub string, words []string, script string) (Wish, error)
	// Says is what it prints where a job was submitted, or refused.
	Says(stub string, number int, bare bool, err error) (stdout, stderr string)
	// Output is the file that a pattern of [Wish.Output] names, once the child has its
	// number. One that is not below its directory is an error of kind [KindUsage].
	Output(pattern string, c *Child) (string, error)
	// Inherited are those of a parent's further options of a submission, see
	// [SlurmOptions], that its children have, too: none that asks for more than they count.
	Inherited(options []string) []string
	// Queue lists children; bare is without a head.
	Queue(rows []ChildRow, bare bool) string
}

// WishVerb is what a [Wish] is for.
type WishVerb string

// The verbs.
const (
	WishSubmit WishVerb = ""
	WishList   WishVerb = "list"
	WishCancel WishVerb = "cancel"
)

// Wish is what a task has asked for by a [Stub]. It is not bounded yet.
type Wish struct {
	Verb      WishVerb
	Jobs      []string // to list or cancel, as the task names them
	Name      string   // "" is not said
	Command   Command
	Script    string // on the command's standard input
	Resources Resources
	Partition string
	After     []ChildAfter
	// Network, Allow and Scope are to be narrower than those of the task that asks.
	Network      string
	Allow, Scope []string
	Image        string // that is named; "" is the task's own
	// Output and Error are patterns of files below the directory in which it was asked, for
	// what the job prints; with Output alone it is that of both.
	Output, Error string
	Waits         bool // the answer is to come when the job has ended
	Shows         bool // with what it has printed
	Bare          bool // the number alone is printed
}

// ChildRow is a child as a task sees it.
type ChildRow struct {
	Number    int
	Name      string
	User      string
	Partition string
	State     State
	Ran       time.Duration
	Node      string
}

// ChildAfter is another child, as the task names it, that must have ended before.
type ChildAfter struct {
	Child string
	Need  Need
}

// Child bounds what a task of this job has asked for. The number, the id, the attempt
// and what it waits for are not settled yet. An error is of kind [KindUsage], and names
// the bound.
func (s *Spec) Child(w Wish) (Child, error) {
	b := s.Submit
	refuse := func(key, format string, args ...any) (Child, error) {
		return Child{}, &Error{Kind: KindUsage, Msg: fmt.Sprintf(format, args...), Hint: "[submit] " + key + " of the task that submits bounds it"}
	}
	c := Child{Version: 1, Name: w.Name, Command: w.Command, Script: w.Script, Resources: w.Resources, Partition: w.Partition,
		Network: w.Network, Allow: w.Allow, Scope: w.Scope, Output: w.Output, Error: w.Error}
	if c.Name == "" {
		c.Name = s.Name + " job"
	}
	r := &c.Resources
	var own bool
	if w.Image != "" && b.Jobs() {
		c.Image, own = s.childImage(w.Image)
	}
	switch {
	case !b.Jobs():
		return refuse("max_jobs", "this task may submit no jobs")
	case c.Command.Empty():
		return Child{}, &Error{Kind: KindUsage, Msg: "nothing is said to run"}
	case CheckText("the name", c.Name) != nil || len([]rune(c.Name)) > maxChildName:
		return Child{}, &Error{Kind: KindUsage, Msg: fmt.Sprintf("the name has more than %d characters, or one that is not printable", maxChildName)}
	case len(c.Script) > MaxJobScript:
		return Child{}, &Error{Kind: KindUsage, Msg: fmt.Sprintf("the script has more than %d bytes", MaxJobScript)}
	case len(w.After) > MaxChildren:
		return Child{}, &Error{Kind: KindUsage, Msg: fmt.Sprintf("it is to wait for more than %d jobs", MaxChildren)}
	case len(w.Allow) > maxNarrower || len(w.Scope) > maxNarrower:
		return Child{}, &Error{Kind: KindUsage, Msg: fmt.Sprintf("it names more than %d things that it may reach or change", maxNarrower)}
	case len(w.Scope) > 0 && s.Workspace == nil:
		return Child{}, &Error{Kind: KindUsage, Msg: "this task has no workspace, and so no scope"}
	case r.Time > b.Time:
		return refuse("time", "a time of %s is more than %s", r.Time, b.Time)
	case b.Memory != 0 && r.Memory > b.Memory:
		return refuse("memory", "%s of memory are more than %s", r.Memory, b.Memory)
	case gpuCount(r.GPUs) > b.GPUs:
		return refuse("gpus", "%s GPUs are more than %d", r.GPUs, b.GPUs)
	case w.Image != "" && c.Image == "" && !own:
		return Child{}, &Error{Kind: KindUsage, Msg: fmt.Sprintf("the image %.200q is none of those that are allowed", w.Image),
			Hint: "[submit] images of the task that submits names them: " + strings.Join(s.childImages(), ", ")}
	case c.Partition != "" && c.Partition != s.Slurm.Partition && !slices.Contains(b.Partitions, c.Partition):
		return refuse("partitions", "the partition %q is none of those that are allowed", c.Partition)
	}
	if r.Time == 0 {
		r.Time = b.Time
	}
	if r.Memory == 0 { // who says nothing asks for the scheduler's default, which no bound of berth's knows
		r.Memory = s.Resources.Memory
		if b.Memory != 0 && (r.Memory == 0 || r.Memory > b.Memory) {
			r.Memory = b.Memory
		}
	}
	r.Disk = s.Resources.Disk
	if float64(max(r.CPUs, 1))*float64(r.Time) > math.MaxInt64/2 || c.CPUTime() > b.MaxCPUTime {
		return refuse("max_cpu_hours", "%s for %s are more than %s of CPU time", Plural(max(r.CPUs, 1), "CPU"), r.Time, b.MaxCPUTime)
	}
	return c, nil
}

// childImage finds the image of [Submit.Images] that a task names, or its own. A reference is
// compared as a whole, a path by its components; one with ".." in it is none of them, as only
// the file system knows where that leads.
func (s *Spec) childImage(asked string) (name string, own bool) {
	same := func(is string) bool {
		return is != "" && (asked == is || path.IsAbs(asked) && path.IsAbs(is) && !slices.Contains(strings.Split(asked, "/"), "..") &&
			path.Clean(asked) == path.Clean(is))
	}
	if same(s.Image) || same(s.ImageRef) {
		return "", true
	}
	for _, i := range s.Submit.Images {
		if same(i.Name) {
			return i.Name, false
		}
	}
	return "", false
}

// childImages are the names of all images that a task's job may have.
func (s *Spec) childImages() (names []string) {
	for _, own := range []string{s.ImageRef, s.Image} {
		if own != "" {
			names = append(names, own)
			break
		}
	}
	for _, i := range s.Submit.Images {
		names = append(names, i.Name)
	}
	if len(names) == 0 {
		names = []string{"none"}
	}
	return names
}

// maxNarrower bounds the lists with which a child asks for less than its parent has.
const maxNarrower = 100

// maxChildName is how long the name of a child may be, in characters, as a task's.
const maxChildName = 200

// Another bounds one more child beside those that there are.
func (s *Submit) Another(have []Child, c *Child) error {
	var spent time.Duration
	for i := range have {
		spent += have[i].CPUTime()
	}
	switch {
	case len(have) >= s.MaxJobs:
		return &Error{Kind: KindRejected, Msg: fmt.Sprintf("this task has submitted %d jobs, and may submit no more", len(have)),
			Hint: "[submit] max_jobs bounds it; those that failed, and those of earlier attempts, count"}
	case c.CPUTime() > s.MaxCPUTime-spent:
		return &Error{Kind: KindRejected,
			Msg:  fmt.Sprintf("it asks for %s of CPU time, and of %s are left %s", c.CPUTime(), s.MaxCPUTime, s.MaxCPUTime-spent),
			Hint: "[submit] max_cpu_hours bounds it: CPUs times time, of all jobs of this task"}
	}
	return nil
}

// maxGPUText bounds a request for GPUs, in bytes.
const maxGPUText = 1000

// gpuCount is how many GPUs a request such as "2" or "a100:2,1" names; what it cannot
// read are too many.
func gpuCount(asked string) int {
	if asked == "" {
		return 0
	}
	if len(asked) > maxGPUText {
		return math.MaxInt
	}
	n := 0
	for part := range strings.SplitSeq(asked, ",") {
		k, err := strconv.Atoi(part[strings.LastIndexByte(part, ':')+1:])
		if err != nil || k < 0 || k > 1<<20 {
			return math.MaxInt
		}
		n += k
	}
	return n
}

// GPUCount is how many GPUs are asked for.
func (r *Resources) GPUCount() int { return gpuCount(r.GPUs) }

// Bounds are those of a task that may have jobs submitted, in a few words.
func (s *Submit) Bounds() string {
	text := fmt.Sprintf("at most %d jobs, %s of CPU time together, %s each", s.MaxJobs, s.MaxCPUTime, s.Time)
	if s.Memory != 0 {
		text += ", " + s.Memory.String() + " of memory"
	}
	if s.GPUs > 0 {
		text += fmt.Sprintf(", %d GPUs", s.GPUs)
	}
	if len(s.Partitions) > 0 {
		text += ", partitions " + strings.Join(s.Partitions, " ")
	}
	if len(s.Images) > 0 {
		text += ", images"
		for _, i := range s.Images {
			text += " " + i.Name
		}
	}
	if s.EndWithParent {
		text += "; they end with it"
	}
	return text
}
