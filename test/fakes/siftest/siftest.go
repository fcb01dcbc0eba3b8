// Package siftest makes the images that tests read.
package siftest

import (
	"bytes"
	"encoding/binary"

	"github.com/google/uuid"
	"github.com/sylabs/sif/v2/pkg/sif"
)

// New is a SIF with this id. Its first part is a definition file; its second is
// its root file system, said to be a squashfs, where there is one. The same
// arguments make the same bytes.
func New(id uuid.UUID, root []byte) []byte { return WithKind(id, root, sif.FsSquash) }

// WithKind is [New] with a root file system of another kind.
func WithKind(id uuid.UUID, root []byte, kind sif.FSType) []byte {
	must := func(err error) {
		if err != nil { // programs that tests start make images, too
			panic(err)
		}
	}
	definition, err := sif.NewDescriptorInput(sif.DataDeffile, bytes.NewReader([]byte("bootstrap: scratch\n")), sif.OptObjectAlignment(1))
	must(err)
	parts := []sif.DescriptorInput{definition}
	if root != nil {
		p, err := sif.NewDescriptorInput(sif.DataPartition, bytes.NewReader(root), sif.OptPartitionMetadata(kind, sif.PartPrimSys, "amd64"))
		must(err)
		parts = append(parts, p)
	}
	var b sif.Buffer
	_, err = sif.CreateContainer(&b, sif.OptCreateDeterministic(), sif.OptCreateWithID(id.String()),
		sif.OptCreateWithLaunchScript("#!/usr/bin/env run-singularity\n"), sif.OptCreateWithDescriptorCapacity(2), sif.OptCreateWithDescriptors(parts...))
	must(err)
	return b.Bytes()
}

// Superblock is the beginning of a squashfs that is said to have so many inodes
// and to be so long.
func Superblock(inodes uint32, length uint64) []byte {
	b := make([]byte, 96)
	copy(b, "hsqs")
	binary.LittleEndian.PutUint32(b[4:], inodes)
	binary.LittleEndian.PutUint64(b[40:], length)
	return b
}
