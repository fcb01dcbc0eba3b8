package doctor

import "berth/jobs/finding"

// runcFlaws is what is known of docker's and podman's runtime, from its advisories.
var runcFlaws = []finding.Flaw{
	{ID: "CVE-2024-21626", Date: "2024-01-31", What: "a container can reach the host's files through a leaked descriptor", Fixed: []string{"1.1.12"}},
	{ID: "CVE-2025-31133, 52565, 52881", Date: "2025-11-05", Fixed: []string{"1.2.8", "1.3.3", "1.4.0"},
		What: "a container can make runc write to the host's /proc"},
}
