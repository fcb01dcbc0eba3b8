package ttystream

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Inside takes the terminal that in and out are and says on it that it has.
// The process gives the terminal up as its controlling one, for which it must
// catch SIGHUP: commands that it starts cannot open it as theirs. The stream's
// first Read fails if the other side does not answer as it should.
func Inside(in, out *os.File, nonce string) (*Link, error) {
	fd := int(in.Fd())
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("its standard input is no terminal: %w", err)
	}
	raw(t)
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, t); err != nil {
		return nil, fmt.Errorf("set the terminal raw: %w", err)
	}
	// Neither is needed for the stream; both keep others in there off it.
	_ = unix.Fchmod(fd, 0)
	_ = unix.IoctlSetInt(fd, unix.TIOCNOTTY, 0)
	if _, err := out.Write(append([]byte(Ready(nonce)), all...)); err != nil {
		return nil, err
	}
	l := newLink(out, nil)
	go func() {
		r := bufio.NewReaderSize(in, 64<<10)
		if err := prove(r); err != nil {
			l.fail(err)
			return
		}
		l.run(r)
	}()
	return l, nil
}

// raw is the mode in which a terminal passes every byte as it is, both ways.
func raw(t *unix.Termios) {
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.INPCK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL |
		unix.IXON | unix.IXOFF | unix.IXANY | unix.IUCLC | unix.IMAXBEL
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN | unix.TOSTOP
	t.Cflag &^= unix.CSIZE | unix.PARENB
	t.Cflag |= unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
}

// People returns what writes to whoever holds the other side's messages.
func (l *Link) People() io.Writer { return people{l} }

type people struct{ l *Link }

func (p people) Write(b []byte) (int, error) { return p.l.send(typeErr, b) }
