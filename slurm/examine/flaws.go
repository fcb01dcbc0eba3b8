package examine

import "berth/jobs/finding"

// flaws are from the release notes and advisories of Slurm. Only what lets
// another user reach a user's jobs, or loses data, is listed.
var flaws = []finding.Flaw{
	{
		ID: "CVE-2022-29500, 29501, 29502", Date: "2022-05-04",
		What:  "any user can run processes as others, root included",
		Fixed: []string{"20.11.9", "21.08.8"},
	},
	{
		ID: "CVE-2023-41914", Date: "2023-10-11",
		What:  "races over files let a user take over files of others, or remove what is in directories",
		Fixed: []string{"22.05.10", "23.02.6"},
	},
	{
		ID: "CVE-2023-49933 to 49938", Date: "2023-12-13",
		What:  "messages between its parts can be altered or used again, tokens too",
		Fixed: []string{"22.05.11", "23.02.7", "23.11.1"},
	},
	{ID: "CVE-2024-48936", Date: "2024-10-23", What: "with stepmgr a user can run processes in jobs of others", Fixed: []string{"24.05.4"}, Since: "24.05"},
	{ID: "CVE-2025-43904", Date: "2025-05-07", What: "a coordinator can make an administrator", Fixed: []string{"23.11.11", "24.05.8", "24.11.5"}},
	{
		ID: "CVE-2026-65107 and seven more", Date: "2026-09-02",
		What:  "sbcast without its credential, overflows in slurmstepd, questions to the accounting that are not checked",
		Fixed: []string{"25.05.9", "25.11.8", "26.05.4"},
	},
}
