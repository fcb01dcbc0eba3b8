package task

import (
	"errors"
	"testing"

	"berth/jobs"
)

// refused are lines that stand from line 4 on in a task file with nothing else
// wrong, and all that is said about them.
var refused = []struct{ lines, want string }{
	{"[resources]\nmemmory = \"4GiB\"", `fix.md:5: unknown key "memmory" in [resources]: did you mean "memory"?`},
	{"[resources]\nmemory = \"4GB\"", `fix.md:5: resources.memory: "4GB" has the unit "GB": the units are KiB, MiB, GiB and TiB; did you mean 4GiB?`},
	{"[resources]\nmemory = \"4G\"", `fix.md:5: resources.memory: "4G" has the unit "G": the units are KiB, MiB, GiB and TiB; did you mean 4GiB?`},
	{"[resources]\nmemory = 1.5", `fix.md:5: resources.memory must be a size such as "512MiB", or a whole number of MiB, found the number 1.5`},
	{"[resources]\nmemory = -1", `fix.md:5: resources.memory: size "-1" is out of range`},
	{"[resources]\nmemory = 0", `fix.md:5: resources.memory: size "0" is out of range`},
	{"[resources]\nmemory = true", `fix.md:5: resources.memory must be a size such as "512MiB", or a whole number of MiB, found true`},
	{"[resources]\ncpus = \"4\"", `fix.md:5: resources.cpus must be a whole number, found the string "4": write 4 without quotes`},
	{"[resources]\ncpus = 2.0", "fix.md:5: resources.cpus must be a whole number, found the number 2.0"},
	{"[resources]\ncpus = 0", "fix.md:5: resources.cpus must be from 1 to 1048576, found 0"},
	{"[resources]\nnodes = -3", "fix.md:5: resources.nodes must be from 1 to 1048576, found -3"},
	{"[resources]\ntime = \"2 hours\"", `fix.md:5: resources.time: "2 hours" is not a duration: write for example 90s, 30m or 2h`},
	{"[resources]\ntime = \"1:30\"", `fix.md:5: resources.time: "1:30" is not a duration: write for example 90s, 30m or 2h`},
	{"[resources]\ntime = 0", `fix.md:5: resources.time: duration "0" is out of range`},
	{"[resources]\ntime = 1979-05-27", `fix.md:5: resources.time must be a duration such as "2h", or a whole number of seconds, found the date 1979-05-27`},
	{"[resources]\ngpus = \"a100\"", `fix.md:5: resources.gpus must be a number or "TYPE:NUMBER" such as "a100:2", found "a100"`},
	{"[resources]\ngpus = \"a100:1,v100:1\"", `fix.md:5: resources.gpus must be a number or "TYPE:NUMBER" such as "a100:2", found "a100:1,v100:1"`},
	{"[resources]\ngpus = \"a100:0\"", `fix.md:5: resources.gpus must ask for 1 GPU or more, found "a100:0"`},
	{"[resources]\ngpus = 0", `fix.md:5: resources.gpus must ask for 1 GPU or more, found "0"`},
	{"[resources]\nmem = 3", `fix.md:5: unknown key "mem" in [resources]: did you mean "memory"?`},
	{"[resources]\nwalltime = 3", `fix.md:5: unknown key "walltime" in [resources]: did you mean "time"?`},
	{"[resources]\nnetwork = \"none\"", `fix.md:5: key "network" in [resources] is not supported by this version of berth: network and containment levels are not built yet`},
	{"[resources]\npartition = \"x\"", `fix.md:5: unknown key "partition" in [resources]: did you mean "partition" in [slurm]?`},
	{"[resources]\nntasks = 0", "fix.md:5: resources.ntasks must be from 1 to 1048576, found 0"},
	{"[resources]\nranks = 2", `fix.md:5: unknown key "ranks" in [resources]: did you mean "ntasks"?`},
	{"[slurm]\nmpi = \"pmi2\"", `fix.md:5: slurm.mpi must not be "pmi2": its connection is an open descriptor, which commands in a container do not get; use "pmix"`},
	{"[slurm]\nmpi = \"mpich\"", `fix.md:5: slurm.mpi must be "pmix" or "none", found "mpich"`},
	{"[slurm]\nextra = [\"--ntasks=2\"]", `fix.md:5: slurm.extra[0] must not set --ntasks: use ntasks in [resources]`},
	{"[slurm]\nextra = [\"-n 2\"]", `fix.md:5: slurm.extra[0] must not set -n (--ntasks): use ntasks in [resources]`},
	{"[resources]\nfrobnicate = 1", `fix.md:5: unknown key "frobnicate" in [resources]: the keys are cpus, memory, disk, time, gpus, nodes, ntasks`},
	{"[resource]\ncpus = 1", `fix.md:4: unknown key "resource": did you mean [resources]?`},
	{"resources = 1", "fix.md:4: resources must be a table, found the number 1"},
	{"cpus = 1", `fix.md:4: unknown key "cpus": did you mean "cpus" in [resources]?`},
	{`command = "x"`, `fix.md:4: unknown key "command": did you mean "command" in [agent]?`},
	{"after = 3", `fix.md:4: after must be a string such as "ok:1a2b3c4d", or a list of them, found the number 3`},
	{"after = [\"perhaps:1\"]", `fix.md:4: after: "perhaps:1" does not say ok, any or notok
hint: name a job, or ok:JOB, any:JOB or notok:JOB; several stand behind commas`},
	{"depends = \"1\"", `fix.md:4: unknown key "depends": did you mean "after"?`},
	{"retry = 3", `fix.md:4: retry must be "on", "off", or a table such as {memory = 2}, found the number 3`},
	{"retry = \"yes\"", `fix.md:4: retry must be "off" or "on", found "yes"`},
	{"[retry]\nmax = 3", `fix.md:5: unknown key "max" in retry: did you mean "max_memory"?`},
	{"[retry]\nmemory = 101", `fix.md:5: memory in retry must be from 0 to 100, found 101`},
	{"[retry]\ncodes = [3]", `fix.md:5: codes in retry names exit codes after which the task is tried again, and retry.task allows that 0 times: give task = 1, or more`},
	{"resume = 3", `fix.md:4: resume must be "on", "off", or a table such as {every = "20m"}, found the number 3`},
	{"resume = \"yes\"", `fix.md:4: resume must be "off" or "on", found "yes"`},
	{"[resume]\nsignal = 3", `fix.md:5: unknown key "signal" in resume: the keys are before, hook, every, min, attempts, core_hours`},
	{"[resume]\nattempts = 101", `fix.md:5: attempts in resume must be from 1 to 100, found 101`},
	{"[resume]\nmax_attempts = 3", `fix.md:5: unknown key "max_attempts" in resume: did you mean "attempts"?`},
	{"[resume]\nevery = \"1ms\"", `fix.md:5: every in resume must be 1s or more: a checkpoint reads all of the workspace`},
	{"[resume]\nhook = true", `fix.md:5: hook in resume must be a string (for the shell) or a list of strings, found true: put it in quotes: "true"`},
	{`fallback = ["a"]`, `fix.md:4: key "fallback" is not supported by this version of berth: falling back to another place is not built yet`},
	{"[schedule]\ncron = \"x\"", `fix.md:4: key "schedule" is not supported by this version of berth: schedules are not built yet`},
	{`template = "x"`, `fix.md:4: key "template" stands in [terminal]`},
	{"[review]\nby = \"x\"", `fix.md:4: key "review" is not supported by this version of berth: reviews are not built yet`},
	{`profile = "x"`, `fix.md:4: key "profile" is chosen where the task is submitted: use the flag --profile`},
	{`prompt = "x"`, `fix.md:4: key "prompt" is not needed: the prompt is the text below the front matter`},
	{`name = "y"`, `fix.md:4: duplicate key "name"`},
	{"[agent]\nmodel = \"x\"", `fix.md:5: key "model" in [agent] is not supported by this version of berth: agent adapters and their caps are not built yet; name the agent's own command`},
	{`agent.model = "x"`, `fix.md:4: key "model" in [agent] is not supported by this version of berth: agent adapters and their caps are not built yet; name the agent's own command`},
	{"agent.max_turns = 3", `fix.md:4: key "max_turns" in [agent] is not supported by this version of berth: agent adapters and their caps are not built yet; name the agent's own command`},
	{"agent.max_cost = 3", `fix.md:4: key "max_cost" in [agent] is not supported by this version of berth: agent adapters and their caps are not built yet; name the agent's own command`},
	{`agent.adapter = "claude"`, `fix.md:4: key "adapter" in [agent] is not supported by this version of berth: agent adapters and their caps are not built yet; name the agent's own command`},
	{"agent.commnd = 1", `fix.md:4: unknown key "commnd" in [agent]: did you mean "command"?`},
	{"[terminal]\ndone = [\"x\"]", `fix.md:5: unknown key "done" in [terminal]: did you mean "done" outside of any table?`},
	{"[terminal]\ntemplate = \"A b\"", `fix.md:5: terminal.template must be the name of a template: lower-case letters, digits, dots, dashes and underscores, at most 64, found "A b"`},
	{"[terminal]\nimage = \"/x.sif\"\ntemplate = \"default\"", "fix.md:6: terminal.template is given beside an image\nhint: leave one of them out"},
	{"[terminal]\nbackend = \"../x\"", `fix.md:5: terminal.backend must be "auto", "singularity", "docker", "ssh", "local", "modal" or "daytona", found "../x"`},
	{"[terminal]\nbackend = \"modla\"", `fix.md:5: terminal.backend must be "auto", "singularity", "docker", "ssh", "local", "modal" or "daytona", found "modla": did you mean "modal"?`},
	{"[terminal]\nbackend = \"apptainer\"", `fix.md:5: terminal.backend must not be "apptainer": did you mean "singularity"?`},
	{"[terminal]\nbackend = \"singlarity\"", `fix.md:5: terminal.backend must be "auto", "singularity", "docker", "ssh", "local", "modal" or "daytona", found "singlarity": did you mean "singularity"?`},
	{"[terminal]\nbackend = \"\"", "fix.md:5: terminal.backend is empty: remove it or give it a value"},
	{"[terminal]\nnetwork = \"none\"", `fix.md:5: key "network" in [terminal] is not supported by this version of berth: network and containment levels are not built yet`},
	{"[terminal]\nlevel = \"fs\"", `fix.md:5: key "level" in [terminal] is not supported by this version of berth: network and containment levels are not built yet`},
	{"[terminal]\negress = []", `fix.md:5: key "egress" in [terminal] is not supported by this version of berth: network and containment levels are not built yet`},
	{"[terminal]\nimage = \"docker://Ubuntu:24.04\"", "fix.md:5: terminal.image: \"docker://Ubuntu:24.04\" names no image of a registry: its name is none\nhint: write it as docker://[HOST/]NAME:TAG, the name in lower case"},
	{"[terminal]\nimage = \"oras://x y\"", "fix.md:5: terminal.image: \"oras://x y\" names no image of a registry: its name is none\nhint: write it as oras://[HOST/]NAME:TAG, the name in lower case"},
	{"[terminal]\nimage = \"ftp://a/b\"", "fix.md:5: terminal.image is no source of images that berth knows: docker://, oras://, library://, docker-archive:, or the path of a SIF"},
	{"[terminal]\nimage = \"$HOME/x.sif\"", "fix.md:5: terminal.image names an environment variable, which is not expanded here: \"$HOME/x.sif\"\nhint: write ~ for your home, or the path in full"},
	{"[terminal]\nimage = \"/scratch/${USER}/x.sif\"", "fix.md:5: terminal.image names an environment variable, which is not expanded here: \"/scratch/${USER}/x.sif\"\nhint: write ~ for your home, or the path in full"},
	{"[terminal]\nimage = \"~ada/x.sif\"", "fix.md:5: terminal.image begins with ~USER, which is not expanded: write the path in full"},
	{"[terminal]\nimage = \"a\\nb.sif\"", "fix.md:5: terminal.image holds a control character\nhint: remove line breaks, tabs and escape characters from it"},
	{"[terminal]\noverlay = \"Big\"", `fix.md:5: terminal.overlay must be a name of lower-case letters, digits, dots, dashes and underscores, at most 64, found "Big"`},
	{"[terminal]\noverlay = \"../x\"", `fix.md:5: terminal.overlay must be a name of lower-case letters, digits, dots, dashes and underscores, at most 64, found "../x"`},
	{"[terminal]\nbind = \"/a\"", `fix.md:5: terminal.bind must be a list of "SOURCE:DESTINATION", found the string "/a": write ["/a"]`},
	{"[terminal]\nbind = [\"/a:rw\"]", `fix.md:5: terminal.bind[0] has no destination, found "/a:rw": write "/a:/a:rw"`},
	{"[terminal]\nbind = [\"/a:/b:rx\"]", `fix.md:5: terminal.bind[0] must end in :ro or :rw, found "/a:/b:rx"`},
	{"[terminal]\nbind = [\"/a:/b:rw:c\"]", `fix.md:5: terminal.bind[0] has more than two colons, found "/a:/b:rw:c": write a table with source and destination for a path with a colon`},
	{"[terminal]\nbind = [\"/a:b\"]", `fix.md:5: terminal.bind[0] has the destination "b", which is not an absolute path`},
	{"[terminal]\nbind = [\"/a:/b/../c\"]", `fix.md:5: terminal.bind[0] has the destination "/b/../c": write "/c"`},
	{"[terminal]\nbind = [\"/a:/b/\"]", `fix.md:5: terminal.bind[0] has the destination "/b/": write "/b"`},
	{"[terminal]\nbind = [\"/\"]", `fix.md:5: terminal.bind[0] has the destination "/", which would cover the image`},
	{"[terminal]\nbind = [\":/b\"]", `fix.md:5: terminal.bind[0] has no source, found ":/b"`},
	{"[terminal]\nbind = [\"/a:/work/x\"]", `fix.md:5: terminal.bind[0] has the destination "/work/x", and /work inside is not for binds`},
	{"[terminal]\nbind = [\"/dev/shm\"]", `fix.md:5: terminal.bind[0] has the destination "/dev/shm", and /dev inside is not for binds`},
	{"[terminal]\nbind = [\"/a:/proc\"]", `fix.md:5: terminal.bind[0] has the destination "/proc", and /proc inside is not for binds`},
	{"[terminal]\nbind = [\"/a:/.berth\"]", `fix.md:5: terminal.bind[0] has the destination "/.berth", and /.berth inside is not for binds`},
	{"[terminal]\nbind = [\"/a:/c\",\n \"/b:/c\"]", `fix.md:6: terminal.bind[1] has the destination "/c" a second time`},
	{"[terminal]\nbind = [3]", `fix.md:5: terminal.bind[0] must be a string such as "/data:/data:ro", or a table with source and destination, found the number 3`},
	{"[terminal]\nbind = [{destination = \"/x\"}]", `fix.md:5: missing key "source" in terminal.bind[0]: add for example source = "/data"`},
	{"[terminal]\nbind = [{source = \"/x\", writeable = true}]", `fix.md:5: unknown key "writeable" in terminal.bind[0]: did you mean "writable"?`},
	{"[terminal]\nbind = [{source = \"/x\", writable = \"yes\"}]", `fix.md:5: writable in terminal.bind[0] must be true or false, found the string "yes"`},
	{"[terminal]\nbind = [{source = \"/x\", destination = \"x\"}]", `fix.md:5: terminal.bind[0] has the destination "x", which is not an absolute path`},
	{"[terminal]\nenv = {A = \"1\"}", `fix.md:5: terminal.env must be a list of "NAME" or "NAME=VALUE", found a table`},
	{"[terminal]\nenv = [\"A\", \"A=1\"]", "fix.md:5: terminal.env[1] names A a second time"},
	{"[terminal]\nenv = [\"1A=2\"]", `fix.md:5: terminal.env[0] is not NAME or NAME=VALUE: the name is "1A"`},
	{"[terminal]\nenv = [\"\"]", `fix.md:5: terminal.env[0] is not NAME or NAME=VALUE: the name is ""`},
	{"[terminal]\nenv = [\"A=x\\ny\"]", "fix.md:5: terminal.env[0]: an environment variable holds a control character\nhint: remove line breaks, tabs and escape characters from it"},
	{"[terminal]\nenv = [\"APPTAINER_BIND=/\"]", "fix.md:5: terminal.env[0] sets APPTAINER_BIND, and names with APPTAINER belong to berth and its container program"},
	{"[terminal]\nenv = [\"SINGULARITYENV_X\"]", "fix.md:5: terminal.env[0] sets SINGULARITYENV_X, and names with SINGULARITY belong to berth and its container program"},
	{"[terminal]\nenv = [\"BERTH_HOME\"]", "fix.md:5: terminal.env[0] sets BERTH_HOME, and names with BERTH_ belong to berth and its container program"},
	{"[workspace]\nbase = \"-x\"", `fix.md:5: workspace.base is not the name of a commit: "-x"`},
	{"[workspace]\nbase = \"a b\"", `fix.md:5: workspace.base is not the name of a commit: "a b"`},
	{"[workspace]\nscope = [\"/etc\"]", `fix.md:5: workspace.scope[0] must be relative to the workspace, found "/etc": did you mean "./etc"?`},
	{"[workspace]\nscope = [\"a/../b\"]", `fix.md:5: workspace.scope[0] must stay inside the workspace, found "a/../b"`},
	{"[workspace]\nscope = [\"\"]", "fix.md:5: workspace.scope[0] is empty: remove it or give it a value"},
	{"[workspace]\nbranch = \"x\"", `fix.md:5: key "branch" in [workspace] is not needed: berth chooses the name of the branch`},
	{`artifacts = ["../x"]`, `fix.md:4: artifacts[0] must stay inside the workspace, found "../x"`},
	{`artifacts = ["~/x"]`, `fix.md:4: artifacts[0] must be relative to the workspace, found "~/x"`},
	{`artifacts = ["!x"]`, "fix.md:4: artifacts[0] is not understood: path pattern \"!x\": negation is not supported\nhint: list what is covered; \\! is an ordinary !"},
	{`artifacts = ["a//b"]`, "fix.md:4: artifacts[0] is not understood: path pattern \"a//b\": has the component \"\"\nhint: write the path from the top of the repository"},
	{"[slurm]\nextra = [\"-J\"]", "fix.md:5: slurm.extra[0] must not set -J (--job-name): berth finds its jobs by their name"},
	{"[slurm]\nextra = [\"--comment=x\"]", "fix.md:5: slurm.extra[0] must not set --comment: berth writes the attempt's id there"},
	{`artifacts = "x"`, `fix.md:4: artifacts must be a list of paths, found the string "x": write ["x"]`},
	{`done = "make"`, `fix.md:4: done must be a list of commands, found the string "make": write ["make"]`},
	{`done = [""]`, "fix.md:4: done[0] is empty: remove it or give it a value"},
	{`done = ["  "]`, "fix.md:4: done[0] is empty"},
	{"done = [[]]", "fix.md:4: done[0] is empty"},
	{`done = [["", "x"]]`, "fix.md:4: done[0][0] is empty: it names the program"},
	{`done = [["a", 1]]`, `fix.md:4: done[0][1] must be a string, found the number 1: put it in quotes: "1"`},
	{`done = ["a\u001bb"]`, "fix.md:4: done[0] holds a control character\nhint: remove escape characters; line breaks and tabs may stay"},
	{`done = [["a\u0000"]]`, "fix.md:4: done[0][0] holds a control character\nhint: remove escape characters; line breaks and tabs may stay"},
	{"done = [3]", `fix.md:4: done[0] must be a string (for the shell) or a list of strings, found the number 3: put it in quotes: "3"`},
	{"[slurm]\nqueue = \"x\"", `fix.md:5: unknown key "queue" in [slurm]: did you mean "partition"?`},
	{"[slurm]\npartition = \"a b\"", "fix.md:5: slurm.partition holds white space"},
	{"[slurm]\npartition = \"a\\n#SBATCH --uid=0\"", "fix.md:5: slurm.partition holds a control character\nhint: remove line breaks, tabs and escape characters from it"},
	{"[slurm]\nconstraint = \"a\\u2028b\"", "fix.md:5: slurm.constraint holds a control character\nhint: remove line breaks, tabs and escape characters from it"},
	{"[slurm]\nextra = [\"-p x\"]", `fix.md:5: slurm.extra[0] must not set -p (--partition): use partition in [slurm]`},
	{"[slurm]\nextra = [\"-x\"]", `fix.md:5: slurm.extra[0] is a short option, found "-x": write the long one, --exclude`},
	{"[slurm]\nextra = [\"-Z\"]", `fix.md:5: slurm.extra[0] must have the form --option or --option=value, found "-Z"`},
	{"[slurm]\nextra = [\"exclusive\"]", `fix.md:5: slurm.extra[0] must begin with --, found "exclusive"`},
	{"[slurm]\nextra = [\"--mail-type END\"]", `fix.md:5: slurm.extra[0] must have the form --option=value: write "--mail-type=END"`},
	{"[slurm]\nextra = [\"--mail-type= END\", \"--\"]", `fix.md:5: slurm.extra[1] must have the form --option or --option=value, found "--"`},
	{"[slurm]\nextra = [\"--output=x\"]", "fix.md:5: slurm.extra[0] must not set --output: berth writes the output into the job's record"},
	{"[slurm]\nextra = [\"--outp=x\"]", `fix.md:5: slurm.extra[0] must not abbreviate an option, found "--outp=x": write its name in full`},
	{"[slurm]\nextra = [\"--mem=4G\"]", "fix.md:5: slurm.extra[0] must not set --mem: use memory in [resources]"},
	{"[slurm]\nextra = [\"--time\", \"--partition=x\", \"--tmp=1\"]", "fix.md:5: slurm.extra[0] must not set --time: use time in [resources]\nfix.md:5: slurm.extra[1] must not set --partition: use partition in [slurm]\nfix.md:5: slurm.extra[2] must not set --tmp: use disk in [resources]"},
	{"[slurm]\nextra = [\"--wrap=x\", \"--array=1-3\"]", "fix.md:5: slurm.extra[0] must not set --wrap: berth writes the job script\nfix.md:5: slurm.extra[1] must not set --array: one task is one job"},
	{"[slurm]\nextra = [\"--comment=a\\nb\"]", "fix.md:5: slurm.extra[0] holds a control character\nhint: remove line breaks, tabs and escape characters from it"},
	{"x = 1\nx = 2", `fix.md:5: duplicate key "x"`},
	{"[slurm]\nqos = \"a\"\n[slurm]\nqos = \"b\"", `fix.md:6: duplicate key "slurm"`},
	{"[slurm", `fix.md:4: not valid TOML: expected '.' or ']' to end table name, but got '\n' instead`},
	{`x = "a`, "fix.md:4: not valid TOML: strings cannot contain newlines"},
	{"x = \"\"\"\na", `fix.md:5: not valid TOML: unexpected EOF; expected '"""'`},
	{"image = 3", `fix.md:4: unknown key "image": did you mean "image" in [terminal]?`},
	{"[terminal]\nimage = 3", `fix.md:5: terminal.image must be a string, found the number 3: put it in quotes: "3"`},
	{"[terminal]\nbackend = [1]", "fix.md:5: terminal.backend must be a string, found a list"},
	{"[terminal.bind]\nsource=\"/x\"", `fix.md:4: terminal.bind must be a list of "SOURCE:DESTINATION", found a table`},
	{"[terminal]\nbind = [[\"/x\"]]", `fix.md:5: terminal.bind[0] must be a string such as "/data:/data:ro", or a table with source and destination, found a list`},
	{"[terminal.enviroment]\nA=1", `fix.md:4: unknown key "enviroment" in [terminal]: did you mean "env"?`},
	{"[agent.caps]\nx = 1", `fix.md:4: key "caps" in [agent] is not supported by this version of berth: agent adapters and their caps are not built yet; name the agent's own command`},
}

// said is an error as a person sees it.
func said(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		t.Fatal("accepted")
	}
	var e *jobs.Error
	if !errors.As(err, &e) || e.Kind != jobs.KindUsage {
		t.Fatalf("not a usage error: %v", err)
	}
	if e.Hint != "" {
		return e.Error() + "\nhint: " + e.Hint
	}
	return e.Error()
}

func TestRefused(t *testing.T) {
	for _, c := range refused {
		_, err := Parse("fix.md", []byte(headTOML+c.lines+"\n+++\n"))
		if got := said(t, err); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.lines, got, c.want)
		}
	}
}
