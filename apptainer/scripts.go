package apptainer

import (
	"context"

	"berth/jobs"
	"berth/overlay"
)

// libraries is what the scripts of most images do: the libraries of --nv and
// --rocm are found.
const libraries = `case ":${LD_LIBRARY_PATH:-}:" in
*:/.singularity.d/libs:*) ;;
*) export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/.singularity.d/libs" ;;
esac
`

// Scripts are what sets the variables of a container over an image, with GPUs of a
// kind or "": the image's own, for the guest to evaluate, of which the container
// program runs none. The note is why they are not known. What is unpacked is put
// in scratch and removed.
func Scripts(ctx context.Context, on jobs.Starter, image, scratch, gpu string) (scripts []string, note string) {
	scripts, err := overlay.Scripts(ctx, on, image, scratch)
	if err != nil {
		note = "the variables that the image sets are left out: " + err.Error()
	}
	if gpu != "" {
		scripts = append(scripts, libraries)
	}
	return scripts, note
}
