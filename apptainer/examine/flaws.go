package examine

import "berth/jobs/finding"

// flaws is what is known of the program, from the release notes and advisories of the
// project. Only what lets another user reach a user's jobs, or loses data, is listed.
var flaws = []finding.Flaw{
	{ID: "CVE-2023-30549", Date: "2023-04-25", Fixed: []string{"1.1.8"}, Setuid: true,
		What: "a setuid installation mounts a user's ext3 images by the kernel, which such an image can attack"},
	{ID: "CVE-2024-3727", Date: "2024-05", What: "digests of images that are pulled are not checked as they should be", Fixed: []string{"1.3.2"}},
	{ID: "CVE-2025-65105", Date: "2025-12-02", What: "--security may not be applied, silently (berth does not use it)", Fixed: []string{"1.4.5"}},
	{ID: "ext3 layers", Fixed: []string{"1.4.4"},
		What: "with fuse2fs below 1.47.3 files of an ext3 layer may silently not be removed, and 1.4.3 breaks read-only ones"},
}
