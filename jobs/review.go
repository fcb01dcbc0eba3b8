package jobs

import (
	"slices"
	"time"
)

// Words of a verdict.
const (
	VerdictApprove = "approve"
	VerdictReject  = "reject"
)

// ReviewVerdict is review/NNNN.json in a job's directory: what a person has decided of
// its result. It is created once and never changed; the last one counts.
type ReviewVerdict struct {
	Version int    `json:"version"`
	Verdict string `json:"verdict"` // [VerdictApprove] or [VerdictReject]
	// Commit is the job's result. Onto is the commit that the target, Ref, had then, and
	// Tree is what the target will have after the merge. A reject may lack them.
	// With several workspaces they are of the first one that has changed, Workspace is its
	// name, and Further has the same of each other one that has.
	Workspace string       `json:"workspace,omitempty"`
	Commit    string       `json:"commit,omitempty"`
	Tree      string       `json:"tree,omitempty"`
	Onto      string       `json:"onto,omitempty"`
	Ref       string       `json:"ref,omitempty"`
	Further   []ReviewTree `json:"further,omitempty"`
	By        string       `json:"by"`
	UID       int          `json:"uid"`
	Host      string       `json:"host"`
	Time      time.Time    `json:"time"`
	Note      string       `json:"note,omitempty"`
	// Unchecked is that no review run had succeeded on the tree.
	Unchecked bool `json:"unchecked,omitempty"`
	// OutOfScope is that it was approved knowing that the result has changed what the task's
	// scope does not cover.
	OutOfScope bool  `json:"out_of_scope,omitempty"`
	Level      Level `json:"level,omitempty"` // at which the task ran
	// Git is how By's git knows them, "Name <address>"; "" is not said.
	Git string `json:"git,omitempty"`
	// Imported says that it was made elsewhere and came in a file; nil is that it was made
	// by the user of this state directory.
	Imported *ReviewImported `json:"imported,omitempty"`
	N        int             `json:"-"` // the number of its file
}

// ReviewTree is what of a verdict, a run, or an agent's advice is about one workspace.
type ReviewTree struct {
	Workspace string `json:"workspace"`
	Commit    string `json:"commit"`
	Tree      string `json:"tree"`
	Onto      string `json:"onto"`
	Ref       string `json:"ref,omitempty"` // of a verdict
}

// treeOf is that of the workspace of this name; the zero one is that nothing is said of it.
func treeOf(name string, first ReviewTree, further []ReviewTree) ReviewTree {
	for _, t := range append([]ReviewTree{first}, further...) {
		if t.Workspace == name {
			return t
		}
	}
	return ReviewTree{Workspace: name}
}

// Of is what the verdict says of the workspace of this name alone.
func (v ReviewVerdict) Of(name string) ReviewVerdict {
	t := treeOf(name, ReviewTree{v.Workspace, v.Commit, v.Tree, v.Onto, v.Ref}, v.Further)
	v.Workspace, v.Commit, v.Tree, v.Onto, v.Ref, v.Further = name, t.Commit, t.Tree, t.Onto, t.Ref, nil
	return v
}

// ReviewImported is how something of a review came in from a file.
type ReviewImported struct {
	By     string    `json:"by"`
	Host   string    `json:"host"`
	Time   time.Time `json:"time"`
	SHA256 string    `json:"sha256"` // of the file
}

// ReviewSent is review.json of a file that another user decides on: what the job's
// record says of its result, without a path of the author's.
type ReviewSent struct {
	Version int    `json:"version"`
	Job     string `json:"job"` // its id
	Name    string `json:"name"`
	Slug    string `json:"slug"`
	// By and Host are the author's account, and Git is how their git knows them.
	By   string `json:"by"`
	Host string `json:"host"`
	Git  string `json:"git,omitempty"`
	// Base is what the task started from. Onto is the commit that the target, Ref, had
	// when the file was written, and Tree what it would have.
	// Of a job with several workspaces these are of the first one that has changed, and
	// Further has each other one that has; Version is 2 then, else 1.
	SentWorkspace
	Further []SentWorkspace `json:"further,omitempty"`
	State   State           `json:"state"`
	Level   Level           `json:"level,omitempty"`
	// Commands are those under done, Done how they went, and Runs how they went again.
	Commands    []Command    `json:"commands,omitempty"`
	Done        []DoneResult `json:"done,omitempty"`
	Runs        []ReviewRun  `json:"runs,omitempty"`
	PromptBytes int          `json:"prompt_bytes,omitempty"`
	Usage       *Usage       `json:"usage,omitempty"`
	Agent       *AgentUse    `json:"agent,omitempty"`
	Created     time.Time    `json:"created"`
	Ended       time.Time    `json:"ended"`
	Exported    time.Time    `json:"exported"`
}

// SentWorkspace is what of it is about one repository.
type SentWorkspace struct {
	Workspace string   `json:"workspace,omitempty"` // its name; "" is the first of the job
	Base      string   `json:"base"`
	Ref       string   `json:"ref"`
	Onto      string   `json:"onto"`
	Tree      string   `json:"tree"`
	Branch    string   `json:"branch"`
	Result    Result   `json:"result"`
	Scope     []string `json:"scope,omitempty"`
}

// All are the workspaces that the review is about, in its order.
func (s *ReviewSent) All() []SentWorkspace {
	return append([]SentWorkspace{s.SentWorkspace}, s.Further...)
}

// Several reports whether it is of a job with several workspaces, though one alone may
// have changed.
func (s *ReviewSent) Several() bool { return s.Workspace != "" || len(s.Further) > 0 }

// Of is what it says of the workspace of this name; the zero one is nothing.
func (s *ReviewSent) Of(name string) SentWorkspace {
	for _, w := range s.All() {
		if w.Workspace == name {
			return w
		}
	}
	return SentWorkspace{Workspace: name}
}

// ReviewImport is imported.json: a review of another user's job, and the repositories on
// this machine that it is decided in.
type ReviewImport struct {
	Version int        `json:"version"` // 2 with several, else 1
	Sent    ReviewSent `json:"sent"`
	ImportRepo
	Further  []ImportRepo   `json:"further,omitempty"` // of the further ones that were sent, in their order
	Imported ReviewImported `json:"imported"`
}

// ImportRepo is a repository on this machine.
type ImportRepo struct {
	Repo string `json:"repo"`          // the git directory
	Top  string `json:"top,omitempty"` // its work tree
}

// ReviewAnswer is verdict.json of a file that an author takes in: what another user has
// decided of the result of a job.
type ReviewAnswer struct {
	Version int           `json:"version"`
	Job     string        `json:"job"`
	Verdict ReviewVerdict `json:"verdict"`
}

// ReviewRun is review/run-NNNN.json: the done commands were run again on a tree.
type ReviewRun struct {
	Version int `json:"version"`
	// Workspace and Further are as those of a [ReviewVerdict].
	Workspace string       `json:"workspace,omitempty"`
	Commit    string       `json:"commit"`
	Tree      string       `json:"tree"`
	Onto      string       `json:"onto"`
	Further   []ReviewTree `json:"further,omitempty"`
	Job       string       `json:"job"` // that ran them
	OK        bool         `json:"ok"`
	State     State        `json:"state"`
	Reason    string       `json:"reason,omitempty"`
	Done      []DoneResult `json:"done,omitempty"`
	Level     Level        `json:"level"`
	Over      string       `json:"over,omitempty"` // what they ran over that the task could prepare
	By        string       `json:"by"`
	Time      time.Time    `json:"time"`
	N         int          `json:"-"`
}

// Of is the run of the tree of the workspace of this name alone.
func (r ReviewRun) Of(name string) ReviewRun {
	t := treeOf(name, ReviewTree{Workspace: r.Workspace, Commit: r.Commit, Tree: r.Tree, Onto: r.Onto}, r.Further)
	r.Workspace, r.Commit, r.Tree, r.Onto, r.Further = name, t.Commit, t.Tree, t.Onto, nil
	return r
}

// VerdictUnsure is of an agent's advice alone.
const VerdictUnsure = "unsure"

// ReviewAdvice is review/advice-NNNN.json: what an agent says of a result. It decides
// nothing, and nothing asks for it but whoever shows it.
type ReviewAdvice struct {
	Version int `json:"version"`
	// Workspace and Further are as those of a [ReviewVerdict].
	Workspace string       `json:"workspace,omitempty"`
	Commit    string       `json:"commit"`
	Tree      string       `json:"tree"`
	Onto      string       `json:"onto"`
	Further   []ReviewTree `json:"further,omitempty"`
	Job       string       `json:"job"` // in which the agent ran
	Agent     string       `json:"agent"`
	ReviewOpinion
	// Problem is why there is no opinion, such as an answer of another form; "" is nothing.
	Problem string    `json:"problem,omitempty"`
	Level   Level     `json:"level"`
	By      string    `json:"by"` // who asked for it
	Time    time.Time `json:"time"`
	N       int       `json:"-"`
}

// TreeOf is the tree of the workspace of this name on which it was given; "" is none.
func (v *ReviewAdvice) TreeOf(name string) string {
	return treeOf(name, ReviewTree{Workspace: v.Workspace, Tree: v.Tree}, v.Further).Tree
}

// ReviewOpinion is the answer that a reviewing agent is asked for.
type ReviewOpinion struct {
	Verdict  string          `json:"verdict,omitempty"` // [VerdictApprove], [VerdictReject] or [VerdictUnsure]
	Points   []ReviewPoint   `json:"points,omitempty"`
	Findings []ReviewFinding `json:"findings,omitempty"`
}

// ReviewPoint is about one point of the task's checklist.
type ReviewPoint struct {
	Point int    `json:"point"` // from 1
	Met   string `json:"met"`   // "yes", "no" or "unsure"
	Why   string `json:"why,omitempty"`
}

// ReviewFinding is something to look at in the tree.
type ReviewFinding struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"` // from 1; 0 is the whole file
	Text string `json:"text"`
}

// ReviewMerge is review/merge-NNNN.json, the journal of the merge of the verdict with the
// same number: written before the target is moved. With several workspaces it is written
// before any is, and the targets move in its order.
type ReviewMerge struct {
	Version   int       `json:"version"`
	Workspace string    `json:"workspace,omitempty"`
	Repo      string    `json:"repo"` // the git directory
	Ref       string    `json:"ref"`
	Old       string    `json:"old"`
	New       string    `json:"new"`
	Tree      string    `json:"tree"`
	Worktree  string    `json:"worktree,omitempty"` // where Ref is checked out; "" is nowhere
	By        string    `json:"by"`
	Host      string    `json:"host"`
	Time      time.Time `json:"time"`
	// Further are the moves in the other workspaces.
	Further []ReviewMerge `json:"further,omitempty"`
	N       int           `json:"-"`
}

// All are the moves of the merge, in their order.
func (m *ReviewMerge) All() []*ReviewMerge {
	all := []*ReviewMerge{m}
	for i := range m.Further {
		all = append(all, &m.Further[i])
	}
	return all
}

// Of is the move in the workspace of this name; without one it is empty.
func (m *ReviewMerge) Of(name string) ReviewMerge {
	for _, one := range m.All() {
		if one.Workspace == name {
			out := *one
			out.Further, out.N = nil, m.N
			return out
		}
	}
	return ReviewMerge{Workspace: name, N: m.N}
}

// ReviewMerged is review/merged-NNNN.json: the target was moved, with several workspaces
// each one. Ref and New are of the first move of the journal.
type ReviewMerged struct {
	Version int       `json:"version"`
	Ref     string    `json:"ref"`
	New     string    `json:"new"`
	Time    time.Time `json:"time"`
}

// Reviews are all of a job's, each in the order of its numbers.
type Reviews struct {
	Verdicts []ReviewVerdict
	Runs     []ReviewRun
	Advice   []ReviewAdvice
	Merges   []ReviewMerge
	Merged   map[int]ReviewMerged // by the number of the merge
	Shown    map[string]bool      // trees whose diff was printed
}

// Of are the same of the workspace of this name alone.
func (r *Reviews) Of(name string) *Reviews {
	p := *r
	p.Verdicts, p.Runs, p.Merges = slices.Clone(r.Verdicts), slices.Clone(r.Runs), slices.Clone(r.Merges)
	for i, v := range p.Verdicts {
		p.Verdicts[i] = v.Of(name)
	}
	for i, run := range p.Runs {
		p.Runs[i] = run.Of(name)
	}
	for i := range p.Merges {
		p.Merges[i] = r.Merges[i].Of(name)
	}
	return &p
}

// Verdict is the one that counts; nil is none.
func (r *Reviews) Verdict() *ReviewVerdict {
	if len(r.Verdicts) == 0 {
		return nil
	}
	return &r.Verdicts[len(r.Verdicts)-1]
}

// Unfinished is the merge that was begun and has no end; nil is none. One of an earlier
// verdict than the last was given up.
func (r *Reviews) Unfinished() *ReviewMerge {
	v := r.Verdict()
	for i := range r.Merges {
		m := &r.Merges[i]
		if _, ended := r.Merged[m.N]; !ended && v != nil && m.N == v.N {
			return m
		}
	}
	return nil
}

// IsMerged is the merge of this result; nil is none.
func (r *Reviews) IsMerged(commit string) *ReviewMerged {
	for _, v := range r.Verdicts {
		if m, ok := r.Merged[v.N]; ok && v.Commit == commit {
			return &m
		}
	}
	return nil
}
