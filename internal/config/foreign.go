package config

// foreignKeys are keys of Hermes that mean something else in berth, or nothing.
// They are refused by name, with the reason, but for the value that says what
// berth does in any case.
var foreignKeys = []Key{
	{Name: "terminal.degraded_mode", Type: Word, Words: []string{"warn", "fail"}, Only: "fail",
		Refused: "a place that fails is always an error that says so"},
	{Name: "terminal.temp_dir", Env: []string{"TERMINAL_TEMP_DIR"},
		Refused: "berth's own files are in its state directory (BERTH_HOME), and what is thrown away in scratch_dir"},
	{Name: "terminal.home_mode", Env: []string{"TERMINAL_HOME_MODE"}, Only: "auto", Alien: "auto",
		Refused: "HOME is the environment's own inside a container, and yours on local and ssh"},
	{Name: "terminal.sandbox_dir", Env: []string{"TERMINAL_SANDBOX_DIR"}, Refused: "environments are kept in berth's state directory: set BERTH_HOME"},
	{Name: "terminal.credential_files", Type: List,
		Refused: "berth copies no credentials into environments: name the variable in env_passthrough, or the file in bind"},
	{Name: "terminal.shell_init_files", Type: List,
		Refused: "no file is read before a command: begin a session with `berth exec -- . FILE`, what it sets stays"},
	{Name: "terminal.auto_source_bashrc", Type: Bool, Only: "false",
		Refused: "commands do not read ~/.bashrc: begin a session with `berth exec -- . ~/.bashrc`, what it sets stays"},
	{Name: "terminal.daemon_term_grace_seconds", Refused: "the time between TERM and KILL is berth's own"},
	{Name: "terminal.oneshot_completion_wait_seconds", Refused: "background processes outlive their client: berth bg wait waits for one"},
	{Name: "terminal.sync_back_max_bytes", Refused: "nothing is synchronized: berth cp copies what you name"},
	{Name: "terminal.docker_snap_compat", Env: []string{"TERMINAL_DOCKER_SNAP_COMPAT"}, Type: Bool, Only: "false", Alien: "false",
		Refused: "containers always run with no-new-privileges"},
	{Name: "terminal.docker_persist_across_processes", Env: []string{"TERMINAL_DOCKER_PERSIST_ACROSS_PROCESSES"}, Type: Bool, Only: "true", Alien: "true",
		Refused: "environments outlive their clients; container_persistent = false throws their files away"},
	{Name: "terminal.docker_shared_container_key", Env: []string{"TERMINAL_DOCKER_SHARED_CONTAINER_KEY"},
		Refused: "who names the same environment shares it: --env NAME, or BERTH_ENV"},
	{Name: "terminal.docker_orphan_reaper", Env: []string{"TERMINAL_DOCKER_ORPHAN_REAPER"}, Type: Bool, Only: "false", Alien: "true",
		Refused: "nothing is removed behind your back: berth env gc removes what killed environments have left"},
	{Name: "terminal.max_foreground_timeout", Env: []string{"TERMINAL_MAX_FOREGROUND_TIMEOUT"},
		Refused: "a command may run as long as its timeout says: there is no highest one"},
	{Name: "terminal.disk_warning_gb", Env: []string{"TERMINAL_DISK_WARNING_GB"}, Alien: "500",
		Refused: "there is no such warning: berth env ls shows what there is, and berth env rm removes it"},
	{Name: "terminal.local_memory_max_mb", Env: []string{"TERMINAL_LOCAL_MEMORY_MAX_MB"},
		Refused: "nothing is limited on the backend local: choose a backend that contains"},
	{Name: "terminal.vercel_runtime", Env: []string{"TERMINAL_VERCEL_RUNTIME"}, Refused: noVercel},
}

const (
	noVercel = "berth has no backend for Vercel's sandboxes: the backends are auto, singularity, docker, bwrap, ssh, local, modal, daytona, " +
		"and programs berth-backend-NAME"
	noBubblewrap = "berth has no backend bubblewrap: its own of that kind is bwrap, with the keys that every container has (terminal.bind, network.mode)"
	noManaged    = "Modal's managed way is a service of Hermes' own, which berth does not use"
)

// foreignPrefixes refuse whole families of names, and the reason. They stand
// behind "terminal." and behind "TERMINAL_" in upper case.
var foreignPrefixes = [][2]string{{"vercel_", noVercel}, {"bubblewrap_", noBubblewrap}, {"managed_modal_", noManaged}}
