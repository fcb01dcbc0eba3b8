//go:build linux

package internet

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
)

// makeRepository makes repo.git with one commit, and returns the directory it is in.
func makeRepository(dir string) (string, error) {
	top := filepath.Join(dir, "git")
	repo := filepath.Join(top, "repo.git")
	if _, err := os.Stat(filepath.Join(repo, "refs", "heads", "main")); err == nil {
		return top, nil
	}
	const script = `set -e
git init -q --bare -b main "$1"
cd "$1"
blob=$(echo "` + works + `" | git hash-object -w --stdin)
tree=$(printf '100644 blob %s\tREADME\n' "$blob" | git mktree)
git update-ref refs/heads/main "$(git commit-tree -m 'the only one' "$tree")"
git update-server-info`
	c := exec.Command("sh", "-c", script, "sh", repo)
	who := []string{"NAME=internet", "EMAIL=internet@test", "DATE=2026-01-01T00:00:00Z"}
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1"}
	for _, w := range who {
		c.Env = append(c.Env, "GIT_AUTHOR_"+w, "GIT_COMMITTER_"+w)
	}
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make a repository: %w: %s", err, out)
	}
	return top, nil
}

// ssh lets everyone in. It has the commands of Git that read, and says hello for all others.
func (i *Internet) ssh(l net.Listener) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return err
	}
	config := &ssh.ServerConfig{NoClientAuth: true}
	config.AddHostKey(signer)
	go i.accept(l, func(c net.Conn) {
		conn, channels, requests, err := ssh.NewServerConn(c, config)
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		go ssh.DiscardRequests(requests)
		for n := range channels {
			if n.ChannelType() != "session" {
				_ = n.Reject(ssh.Prohibited, "sessions only")
				continue
			}
			channel, requests, err := n.Accept()
			if err != nil {
				return
			}
			go i.session(channel, requests, plain(c.LocalAddr()))
		}
	})
	return nil
}

func (i *Internet) session(c ssh.Channel, requests <-chan *ssh.Request, to string) {
	defer func() { _ = c.Close() }()
	for r := range requests {
		var command struct{ Text string }
		if r.Type != "exec" || ssh.Unmarshal(r.Payload, &command) != nil {
			_ = r.Reply(r.Type == "env", nil)
			continue
		}
		_ = r.Reply(true, nil)
		i.log.add(Event{Kind: "ssh", What: command.Text, To: to})
		code := uint32(0)
		if repo, ok := strings.CutPrefix(command.Text, "git-upload-pack "); ok {
			git := exec.Command("git", "-c", "safe.directory=*", "upload-pack", filepath.Join(i.repo, filepath.Base(strings.Trim(repo, "'\""))))
			git.Stdout = c
			in, err := git.StdinPipe() // Run would wait for the client's end
			if err == nil {
				go func() { _, _ = io.Copy(in, c); _ = in.Close() }()
				err = git.Run()
			}
			if err != nil {
				code = 1
			}
		} else {
			_, _ = io.WriteString(c, "hello over ssh\n")
		}
		_, _ = c.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{code}))
		return
	}
}
