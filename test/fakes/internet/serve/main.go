//go:build linux

// Command serve is the small internet of package internet: it serves until its standard
// input ends, or it is told to end.
package main

import (
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"berth/test/fakes/internet"
)

func main() {
	base := flag.String("base", "11.22.33.0/24", "the network whose addresses this machine has")
	node := flag.String("node", "", "the address of node.test")
	dir := flag.String("dir", ".", "where ca.pem and log.jsonl are written")
	device := flag.String("device", "", "record the packets that arrive on this interface")
	stdin := flag.Bool("stdin", false, "end with the standard input")
	flag.Parse()
	o := internet.Options{Dir: *dir, Device: *device}
	var err error
	if o.Base, err = netip.ParsePrefix(*base); err == nil && *node != "" {
		o.Node, err = netip.ParseAddr(*node)
	}
	if err == nil {
		_, err = internet.Start(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
	fmt.Println("ready")
	if *stdin {
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
}
