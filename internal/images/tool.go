package images

// Tool is what the cache has to know of the container program that makes images: its
// variables, its files and its words. Whoever makes the cache knows the program.
type Tool struct {
	// Logins are pairs of variables: a user, and the password, at whichever registry is
	// asked.
	Logins [][2]string
	// AuthFile is the variable of a file with logins, as docker writes one.
	AuthFile string
	// Libraries are variables with the address of the library of SIFs.
	Libraries []string
	// Remotes are the files that say which library is used, of the user with this HOME
	// and of the machine.
	Remotes func(home string) []string
	// Work are the variables with which a program (its path; "" is whichever there is)
	// works in some directories.
	Work func(program string, w Work) []string
	// ByHand is the command that says of a reference what the program says.
	ByHand func(ref string) string
	// AddRemote is the command that chooses a library.
	AddRemote string
	// ScriptFailed are words with which it says that a script of a definition failed.
	ScriptFailed []string
}

// Work is where the container program works.
type Work struct {
	Cache, Temp string
	// Config takes its configuration. Home is a home directory in which the user may
	// have one, with logins: then that is used; "" is not to look.
	Config, Home string
	Plain        bool // registries are asked without TLS
}

// dirTool is the container program's own directory in a scratch directory, see
// [container.Scratch.Conf].
const dirTool = "program"

// logins are the variables by which a registry knows the user. They are given to
// the program that fetches an image and to nothing else.
func (t Tool) logins() []string {
	var names []string
	for _, pair := range t.Logins {
		names = append(names, pair[:]...)
	}
	return append(names, t.AuthFile, "DOCKER_CONFIG", "REGISTRY_AUTH_FILE")
}

// credentials are these and the way there.
func (t Tool) credentials() []string {
	return append(append(t.logins(), "DOCKER_HOST"), append(t.Libraries,
		"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")...)
}

// HintLogin says how a registry is given a login.
func (t Tool) HintLogin() string {
	set := ""
	if len(t.Logins) > 0 {
		set = t.Logins[0][0] + " and " + t.Logins[0][1] + ", or "
	}
	return "set " + set + "DOCKER_CONFIG to the directory of a config.json that has it"
}
