package policy

// A Bundle is a word for several: the hosts that one tool needs.
type Bundle struct {
	Name string // without the @
	Date string // when its words were last looked at, YYYY-MM-DD
	// Verified is when its redirects were last followed, YYYY-MM-DD; "" is never, and
	// is shown as "not verified since".
	Verified string
	Words    []string
	Note     string // what it opens besides
}

const (
	looked = "2026-11-26"
	cdn    = "files are served by a content delivery network: whatever it serves under these names can be reached"
)

// bundles is the data: names that users may allow their tasks. Nothing of berth itself
// is fetched from them. No wildcard is in it: below a CDN's name are other people's
// files, too.
var bundles = []Bundle{
	{Name: "pip", Date: looked, Note: cdn, Words: []string{"pypi.org", "files.pythonhosted.org"}},
	{Name: "npm", Date: looked, Note: cdn, Words: []string{"registry.npmjs.org"}},
	{Name: "cargo", Date: looked, Note: cdn, Words: []string{"index.crates.io", "static.crates.io", "crates.io"}},
	{Name: "go", Date: looked, Note: "storage.googleapis.com serves every public bucket of Google's, also one of the task's own",
		Words: []string{"proxy.golang.org", "sum.golang.org", "storage.googleapis.com", "go.dev"}},
	{Name: "apt", Date: looked, Note: cdn,
		Words: []string{"deb.debian.org", "security.debian.org", "archive.ubuntu.com", "security.ubuntu.com", "ports.ubuntu.com"}},
	{Name: "conda", Date: looked, Note: cdn, Words: []string{"conda.anaconda.org", "repo.anaconda.com"}},
	{Name: "github", Date: looked, Note: "every repository can be read, and with a token written; ssh needs the rule github.com:22",
		Words: []string{"github.com", "api.github.com", "codeload.github.com", "objects.githubusercontent.com", "raw.githubusercontent.com",
			"release-assets.githubusercontent.com"}},
	{Name: "huggingface", Date: looked, Note: "every repository can be read, and with a token written",
		Words: []string{"huggingface.co", "hf.co", "cdn-lfs.huggingface.co", "cdn-lfs-us-1.huggingface.co", "cdn-lfs-eu-1.huggingface.co",
			"cdn-lfs.hf.co", "cdn-lfs-us-1.hf.co", "cdn-lfs-eu-1.hf.co", "cas-server.xethub.hf.co",
			"cas-bridge.xethub.hf.co", "transfer.xethub.hf.co"}},
}

// Bundles are all of them.
func Bundles() []Bundle { return bundles }
