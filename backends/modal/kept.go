package modal

import (
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"berth/backends/external/protocol"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
)

// The images of files by which an environment that is stopped goes on. Modal has no
// tags for images as it has for sandboxes, but it can list their names: an image of
// an environment is called as its sandbox is, and what follows the colon is its
// owner. So it is found without a record, too, and everybody knows whose it is.

// published is what the image of an environment's files is called.
func published(r *protocol.Request) string { return r.Name + ":" + r.Tags[protocol.TagOwner] }

// eachImage goes through the names of images, "name:tag", that begin so.
func (c *conn) eachImage(ctx context.Context, prefix string, f func(*pb.ImageListTagsItem)) error {
	raw, err := c.raw(ctx)
	if err != nil {
		return trouble("list the images", err)
	}
	c.mu.Lock()
	req := pb.ImageListTagsRequest_builder{TagPrefix: prefix, EnvironmentName: c.environment}
	c.mu.Unlock()
	for n := 0; n < protocol.MaxEntries; {
		page, err := raw.ImageListTags(ctx, req.Build())
		if err != nil {
			return trouble("list the images", err)
		}
		for _, t := range page.GetItems() {
			f(t)
		}
		n += max(len(page.GetItems()), 1)
		next := page.GetNextPageToken()
		if next == "" || next == req.PageToken {
			return nil
		}
		req.PageToken = next
	}
	return nil
}

// names are all those of an image, as "name:tag".
func (c *conn) names(ctx context.Context, id string) ([]string, error) {
	raw, err := c.raw(ctx)
	if err != nil {
		return nil, trouble("list the names of the image "+id, err)
	}
	c.mu.Lock()
	req := pb.ImageListTagsRequest_builder{ImageId: id, EnvironmentName: c.environment}
	c.mu.Unlock()
	page, err := raw.ImageListTags(ctx, req.Build()) // none has more than fit on one
	var out []string
	for _, t := range page.GetItems() {
		if t.GetImageId() == id {
			out = append(out, t.GetTag())
		}
	}
	return out, trouble("list the names of the image "+id, err)
}

// unpublish takes a name from an image, and deletes it when that was its only one.
func (c *conn) unpublish(ctx context.Context, id, name string) error {
	had, err := c.names(ctx, id)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(had, func(n string) bool { return n != name }) {
		return c.forget(ctx, id)
	}
	raw, err := c.raw(ctx)
	if err == nil {
		_, err = raw.ImageNameDelete(ctx, pb.ImageNameDeleteRequest_builder{Tag: name}.Build())
	}
	if err = trouble("take the name "+name+" from the image "+id, err); is(err, protocol.NotFound) {
		return nil
	}
	return err
}

// stopped finds the images of environments that have the tags of a request and no
// sandbox that runs.
func (c *conn) stopped(ctx context.Context, tags map[string]string, running []protocol.Found) ([]protocol.Found, error) {
	owner := tags[protocol.TagOwner]
	if owner == "" {
		return nil, nil
	}
	runs := map[string]bool{}
	for _, f := range running {
		runs[f.Name] = true
	}
	var all []protocol.Found
	err := c.eachImage(ctx, namePrefix, func(t *pb.ImageListTagsItem) {
		name, is := strings.CutSuffix(t.GetTag(), ":"+owner)
		if !is || runs[name] {
			return
		}
		id, word, is := identity(name)
		f := protocol.Found{Ref: t.GetImageId(), Name: name, Created: time.UnixMicro(int64(t.GetCreatedAt() * 1e6)).UTC(),
			Tags: map[string]string{protocol.TagVersion: "1", protocol.TagOwner: owner, protocol.TagEnv: id, protocol.TagName: word}}
		if is && hasAll(f.Tags, tags) {
			all = append(all, f)
		}
	})
	return all, err
}

// fullName is a name of an image as Modal lists it.
func fullName(name string) string {
	if strings.Contains(name, ":") {
		return name
	}
	return name + ":latest"
}

const namePrefix = "berth-"

// identity reads the id and the name of an environment from what its sandbox is
// called: "berth-", the id without its dashes, a dash, the name.
func identity(name string) (id, word string, ok bool) {
	rest, ok := strings.CutPrefix(name, namePrefix)
	digits, word, cut := strings.Cut(rest, "-")
	if b, err := hex.DecodeString(digits); !ok || !cut || err != nil || len(b) != 16 {
		return "", "", false
	}
	return strings.Join([]string{digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]}, "-"), word, true
}
