package wire

import (
	"encoding/json"
	"time"

	"berth/jobs"
)

// ClientHello is the client's first message.
type ClientHello struct {
	Version int `json:"version"`
	// Key seals all frames after the hellos, see [Key].
	Key []byte `json:"key,omitempty"`
	// PingTimeout is how long the guest lives without a ping; 0 is for ever.
	PingTimeout time.Duration `json:"ping_timeout_ns"`
	// LeaveGrace is the time between TERM and KILL when the guest leaves.
	LeaveGrace time.Duration `json:"leave_grace_ns"`
	// Home lists the places for HOME, the wanted one first.
	Home []Text `json:"home,omitempty"`
	// User is USER and LOGNAME where the environment has none.
	User Text `json:"user,omitempty"`
	// Login says that shells begin as login shells do: on a bare host that is
	// where the site's modules and PATH come from. An image's PATH would be
	// lost by it.
	Login bool `json:"login,omitempty"`
	// Dir is where sessions begin; "" is HOME.
	Dir Text `json:"dir,omitempty"`
	// OwnPIDNamespace says that the guest's PID namespace is for it alone.
	OwnPIDNamespace bool `json:"own_pid_namespace,omitempty"`
	// PIDNamespace is the client's own, as readlink /proc/self/ns/pid shows
	// it; a guest in the same one is not in one of its own.
	PIDNamespace string `json:"pid_namespace,omitempty"`
	// Env is the environment of commands, in place of the guest's own.
	Env []Text `json:"env,omitempty"`
	// TellEnv asks for the environment of commands in the answer.
	TellEnv bool `json:"tell_env,omitempty"`
	// WritableRoot asks the guest to prove that the root directory can be
	// written: a container program may have mounted it read-only, and not said so.
	WritableRoot bool `json:"writable_root,omitempty"`
	// Look asks the guest what it finds of its place. It leaves with an Error when
	// that holds a socket of the host's that no task may reach.
	Look bool `json:"look,omitempty"`
	// Proof has the guest try, with Look, what must fail in a place with a network of its
	// own.
	Proof *Proof `json:"proof,omitempty"`
	// Confine has commands, and not the guest itself, run with few capabilities
	// and a filter of system calls.
	Confine bool `json:"confine,omitempty"`
	// Network has commands reach what the client allows; nil is that the guest does
	// nothing of the kind.
	Network *NetworkWish `json:"network,omitempty"`
	// Asks has programs inside find a program berth, whose words come as [Ask].
	Asks bool `json:"asks,omitempty"`
	// Stubs are further programs of that kind.
	Stubs []Stub `json:"stubs,omitempty"`
}

// Stub is a program that programs inside find, see [jobs.Stub].
type Stub struct {
	Name     string   `json:"name"`
	Script   bool     `json:"script,omitempty"`
	Takes    []string `json:"takes,omitempty"`
	NoScript []string `json:"no_script,omitempty"`
}

// Proof are sockets of the client's machine that a place with a network of its own must
// not reach.
type Proof struct {
	Port     int    `json:"port"`     // of the loopback
	Abstract string `json:"abstract"` // the name of an abstract socket
}

// NetworkWish is what a guest is to prepare for the connections of commands.
type NetworkWish struct {
	// Literals are addresses and networks that are reached by their numbers, in a room.
	Literals []Literal `json:"literals,omitempty"`
	// Door asks for the proxy door.
	Door bool `json:"door,omitempty"`
	// Credentials are the names of those for each of which there is to be a port on the
	// loopback.
	Credentials []string `json:"credentials,omitempty"`
	// Take has the guest offer connections themselves, where the client may be able to
	// take them, see [FlowMessage].
	Take bool `json:"take,omitempty"`
	// Rooms has the doors in the room of each command that has one of its own, see [OwnRoom]:
	// names and Literals are answered for there, and Credentials have their ports. An older guest
	// gives commands none of it.
	Rooms bool `json:"rooms,omitempty"`
	// Visitor says that the room is another guest's: commands are confined as in a
	// room, and nothing is prepared.
	Visitor bool `json:"visitor,omitempty"`
}

// Literal is addresses of a rule with its ports.
type Literal struct {
	Prefix string   `json:"prefix"`
	Ports  []uint16 `json:"ports"`
}

// LiteralsMessage is the body of [Literals].
type LiteralsMessage struct {
	Literals []Literal `json:"literals"`
}

// NetworkHad is what a guest has prepared.
type NetworkHad struct {
	Room   bool   `json:"room,omitempty"`    // commands run in a room: the transparent door
	NoRoom string `json:"no_room,omitempty"` // why there is none
	Rooms  bool   `json:"rooms,omitempty"`   // each room of a command's own has the transparent door
	// Ports are those of the credentials, in their order.
	Ports []uint16 `json:"ports,omitempty"`
}

// GuestHello is the guest's answer. When Error is set, the guest leaves.
type GuestHello struct {
	Version         int    `json:"version"`
	PID             int    `json:"pid,omitempty"`
	OwnPIDNamespace bool   `json:"own_pid_namespace,omitempty"` // said and verified
	UID             int    `json:"uid"`
	Kernel          string `json:"kernel,omitempty"`
	Home            Text   `json:"home,omitempty"`
	Path            Text   `json:"path,omitempty"`
	Shell           string `json:"shell,omitempty"`
	Env             []Text `json:"env,omitempty"`       // where it was asked for
	MaxStart        int    `json:"max_start,omitempty"` // of the payload of a [Start]; 0 is [MaxMessage]
	Asks            bool   `json:"asks,omitempty"`      // programs inside find a program berth
	AskDir          Text   `json:"ask_dir,omitempty"`   // where what comes back of jobs that they submit is put
	Error           string `json:"error,omitempty"`
	// NotWritable says that Error is the root directory's, see
	// [ClientHello].WritableRoot.
	NotWritable bool `json:"not_writable,omitempty"`
	// Seen is there where it was asked for.
	Seen *jobs.Seen `json:"seen,omitempty"`
	// Network is there where it was asked for.
	Network *NetworkHad `json:"network,omitempty"`
	// NoKeys is a keeper's: it has not got the keys of the environment's credentials yet
	// ([KeepKeys]).
	NoKeys bool `json:"no_keys,omitempty"`
}

// StartMessage begins a command. With Prompt, the client sends the channel
// [PromptData] to its end and the command starts then; with Stdin, it sends the
// channel [Stdin] as the command reads.
type StartMessage struct {
	Shell  Text   `json:"shell,omitempty"`
	Argv   []Text `json:"argv,omitempty"`
	Env    []Text `json:"env,omitempty"` // NAME=VALUE, added
	Dir    Text   `json:"dir,omitempty"`
	Prompt bool   `json:"prompt,omitempty"`
	Stdin  bool   `json:"stdin,omitempty"`
	// Merge makes the command's standard error the same pipe as its standard
	// output: all of it comes as [Stdout]. An older guest keeps them apart.
	Merge bool `json:"merge,omitempty"`
	// Left asks what the command has left running when it ends by itself.
	Left bool `json:"left,omitempty"`
	// Port, in place of a command, joins the standard streams to what listens on this
	// TCP port of the loopback inside.
	Port int `json:"port,omitempty"`
	// Session names the shell state that the command begins with; "" is none.
	// One command at a time runs in a session's own shell and its changes stay;
	// with Fork it runs beside that, from a copy of the state.
	Session string `json:"session,omitempty"`
	Fork    bool   `json:"fork,omitempty"`
	// TTY makes a terminal of this size the command's standard streams; what
	// it shows comes as [Stdout]. It implies Stdin.
	TTY *Size `json:"tty,omitempty"`
	// Timeout ends the command so long after it began: TERM, and KILL after
	// Grace; 0 is never.
	Timeout time.Duration `json:"timeout_ns,omitempty"`
	Grace   time.Duration `json:"grace_ns,omitempty"`
	// MaxMemory bounds what the command and all that it has started take: when a look, once a
	// second, finds more, they are killed; 0 is no bound. An older guest bounds nothing.
	MaxMemory jobs.Bytes `json:"max_memory_bytes,omitempty"`
	// Out and In are paths, inside, of named pipes that the client has open,
	// for much output and input: bytes go through them past everybody in
	// between. A guest that can open them says so in [StartedMessage]; the
	// channel's frames are then only its end.
	Out Text `json:"out,omitempty"`
	In  Text `json:"in,omitempty"`
	// File is an operation of the guest itself in place of a command.
	File *FileRequest `json:"file,omitempty"`
	// Own has the command run in a room of its own. It is a program with arguments, and has
	// no session, no terminal and no prompt.
	Own *OwnRoom `json:"own,omitempty"`
	// Report names a variable of the command that holds the path of a named pipe: what is written
	// to that comes as [Report]. The command has no session. "" is that there is none.
	Report Text `json:"report,omitempty"`
	// Keep is for the keeper of a warm environment and does not reach a guest.
	Keep *KeepRequest `json:"keep,omitempty"`
}

// OwnRoom is a room for one command: files, processes, shared memory and, where there is no
// network but a loopback, a loopback of its own, with doors where [NetworkWish.Rooms] says so. It ends with the command, and so does all that is
// in it; what was written is gone, but for what is in Binds.
type OwnRoom struct {
	Binds []Text `json:"binds,omitempty"` // places in the container that are shared with it
	CPUs  []int  `json:"cpus,omitempty"`  // the only ones it may use; none is any
}

// DivertMessage is the body of a client's [Divert]: the path, inside, of a named pipe that
// the client has open. A guest that can open it sends an empty one in the order of the
// channel's frames; what comes after that is in the pipe, but for the end of the channel.
type DivertMessage struct {
	Out Text `json:"out"`
}

// Size is a terminal's.
type Size = jobs.TerminalSize

// StartedMessage says that a command has begun, after it may have waited for
// its session.
type StartedMessage struct {
	Time time.Time `json:"time"`
	PID  int       `json:"pid,omitempty"` // of its main process, as the guest sees it
	Out  bool      `json:"out,omitempty"` // the named pipes that are used
	In   bool      `json:"in,omitempty"`
}

// ExitMessage says how a command ended. It is sent as soon as that is known;
// the ends of [Stdout], [Stderr] and [Report] follow when their bytes are out.
type ExitMessage struct {
	Exit    jobs.Exit  `json:"exit"`
	MaxRSS  jobs.Bytes `json:"max_rss_bytes,omitempty"`
	Started time.Time  `json:"started,omitzero"`
	Ended   time.Time  `json:"ended,omitzero"`
	// Dir is the session's directory after the command.
	Dir Text `json:"dir,omitempty"`
	// Note is what people should know of how it was run.
	Note     string `json:"note,omitempty"`
	TimedOut bool   `json:"timed_out,omitempty"`
	// OverMemory says that it was killed because of [StartMessage.MaxMemory].
	OverMemory bool `json:"over_memory,omitempty"`
	// Unpinged says that the guest has ended the command, because no ping
	// came for too long: how it ended says nothing about the command.
	Unpinged bool              `json:"unpinged,omitempty"`
	Left     *jobs.LeftRunning `json:"left,omitempty"`
	// ShellEnded says that the command has ended its session's shell: the next
	// one begins with the state that was last seen.
	ShellEnded bool            `json:"shell_ended,omitempty"`
	File       *FileResult     `json:"file,omitempty"`
	Keep       json.RawMessage `json:"keep,omitempty"` // the answer to a [KeepRequest]
	// NoRoom says that the room which [StartMessage.Own] asks for could not be made: the
	// command has not begun, and is not why.
	NoRoom bool `json:"no_room,omitempty"`
	// Again is a keeper's: nothing has begun, because the environment is just
	// ending. The request may be sent again, over a new connection.
	Again bool `json:"again,omitempty"`
	// Lost is set by a keeper: why it is not known how the command ended.
	Lost string `json:"lost,omitempty"`
}

// Scope says whom a signal is for.
type Scope string

// The scopes of a signal.
const (
	ScopeMain Scope = "main" // the process group of the command's main process
	ScopeTree Scope = "tree" // every process that the command has started
)

// SignalMessage is a signal for a command.
type SignalMessage struct {
	Signal int   `json:"signal"`
	Scope  Scope `json:"scope,omitempty"` // "" is main
}

// EndMessage is the body of [Terminate], [End] and [Quit].
type EndMessage struct {
	Grace time.Duration `json:"grace_ns,omitempty"` // between TERM and KILL; 0 is KILL at once
}

// EndedMessage is the answer to [End].
type EndedMessage struct {
	Left int `json:"left"` // processes that could not be killed
}

// EnvironMessage is the body of [Environ]: the texts of scripts, which a shell
// evaluates inside; and the environment of commands, or why they could not be.
type EnvironMessage struct {
	Scripts []Text `json:"scripts,omitempty"`
	Env     []Text `json:"env,omitempty"`
	Error   string `json:"error,omitempty"`
}

// PingMessage is the body of [Ping] and of its [Pong].
type PingMessage struct {
	Number int64 `json:"number"`
}

// CreditMessage gives credit back for a channel of a stream.
type CreditMessage struct {
	Channel Type `json:"channel"`
	Bytes   int  `json:"bytes"`
}

// AskMessage is what a program inside wants: the words of a command line of berth's. All
// of it is the task's.
type AskMessage struct {
	Stub   string `json:"stub,omitempty"` // the name of a [Stub]; "" is berth
	Words  []Text `json:"words,omitempty"`
	Script Text   `json:"script,omitempty"`
	Dir    Text   `json:"dir,omitempty"` // where it was said
}

// AskAnswer is what that program prints and its exit code.
type AskAnswer struct {
	// Again are the words to ask berth next, after a while, for more of the answer.
	Again []Text `json:"again,omitempty"`
	Code  int    `json:"code"`
	Out   Text   `json:"out,omitempty"`
	Err   Text   `json:"err,omitempty"`
}

// QueryMessage asks whether a name may be reached.
type QueryMessage struct {
	Name string `json:"name"`
}

// QueryAnswer is the answer. Of a name that is allowed it has the ports.
type QueryAnswer struct {
	Allowed bool     `json:"allowed,omitempty"`
	Ports   []uint16 `json:"ports,omitempty"`
}

// FlowMessage is a connection that was made inside. Its bytes pass as [FlowUp] and
// [FlowDown].
type FlowMessage struct {
	Host string `json:"host,omitempty"` // a name, or an address
	Port uint16 `json:"port,omitempty"`
	// Credential, in place of both, is the one to whose port it was made.
	Credential string `json:"credential,omitempty"`
	// Room is the stream of the command in whose room, see [OwnRoom], it was made to that port;
	// 0 is in none. The guest says so: nothing in a room has a say in it.
	Room uint32 `json:"room,omitempty"`
	// Proxy says that the program inside takes what answers for an HTTP proxy.
	Proxy bool `json:"proxy,omitempty"`
	// Tell asks for a [FlowAnswer] before the first byte.
	Tell bool `json:"tell,omitempty"`
	// Descriptor is the guest's number of the connection, which it offers; 0 is none. It is
	// open there until the flow ends, and its bytes pass in frames only after [FlowRefused].
	Descriptor int `json:"descriptor,omitempty"`
}

// FlowAnswer says what was decided of a flow.
type FlowAnswer struct {
	Allowed bool   `json:"allowed,omitempty"`
	Rule    string `json:"rule,omitempty"`
	Hint    string `json:"hint,omitempty"`
	// NoWay says that it would be allowed, and that there is no way out at the moment.
	NoWay bool `json:"no_way,omitempty"`
}
