package walls

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// public are the packages of the Go API.
var public = []string{"berth/engine", "berth/jobs", "berth/jobs/store"}

// What the Go API exports can be named by who imports it: no signature, field or method
// has a type of an internal package in it.
func TestPublicTypes(t *testing.T) {
	for _, path := range public {
		pkg, err := exported(path)
		if err != nil {
			t.Fatal(err)
		}
		s := surface{pkg: pkg, seen: map[types.Type]bool{}}
		for _, name := range pkg.Scope().Names() {
			if o := pkg.Scope().Lookup(name); o.Exported() {
				s.object(o)
			}
		}
		for _, found := range s.found {
			t.Error(found)
		}
		if len(s.seen) < 10 {
			t.Errorf("%s: %d types are too few", path, len(s.seen))
		}
	}
}

// The wall would hold for ever if it saw nothing.
func TestSurface(t *testing.T) {
	inside := types.NewPackage("berth/internal/x", "x")
	hidden := types.NewNamed(types.NewTypeName(token.NoPos, inside, "T", nil), types.NewStruct(nil, nil), nil)
	pkg := types.NewPackage("berth/engine", "engine")
	field := func(exported bool) types.Type {
		name := map[bool]string{true: "A", false: "a"}[exported]
		return types.NewStruct([]*types.Var{types.NewField(token.NoPos, pkg, name, types.NewSlice(types.NewPointer(hidden)), false)}, nil)
	}
	for name, c := range map[string]struct {
		typ  types.Type
		want bool
	}{
		"a field":            {field(true), true},
		"an inner field":     {field(false), false},
		"a result":           {types.NewSignatureType(nil, nil, nil, nil, types.NewTuple(types.NewVar(token.NoPos, pkg, "", hidden)), false), true},
		"a map in a channel": {types.NewChan(types.SendRecv, types.NewMap(types.Typ[types.Int], hidden)), true},
		"an alias":           {types.NewAlias(types.NewTypeName(token.NoPos, pkg, "A", nil), hidden), true},
	} {
		s := surface{pkg: pkg, seen: map[types.Type]bool{}}
		if s.typ("it", c.typ); (len(s.found) > 0) != c.want {
			t.Errorf("%s: %q", name, s.found)
		}
	}
}

// surface goes through what a package exports.
type surface struct {
	pkg   *types.Package
	seen  map[types.Type]bool
	found []string
}

func (s *surface) object(o types.Object) {
	s.typ(s.pkg.Name()+"."+o.Name(), o.Type())
}

// methods looks at what a type of berth's has, of other public packages, too.
func (s *surface) methods(where string, named *types.Named) {
	s.typ(where, named.Underlying())
	for m := range named.Methods() {
		if m.Exported() {
			s.typ(where+"."+m.Name(), m.Type())
		}
	}
}

func (s *surface) typ(where string, t types.Type) {
	t = types.Unalias(t)
	if s.seen[t] {
		return
	}
	if named, ok := t.(*types.Named); ok {
		if pkg := named.Obj().Pkg(); pkg != nil && strings.HasPrefix(pkg.Path(), "berth/internal/") {
			s.found = append(s.found, fmt.Sprintf("%s: %s belongs to an internal package", where, named))
			return
		}
		for a := range named.TypeArgs().Types() {
			s.typ(where, a)
		}
		s.seen[t] = true
		if pkg := named.Obj().Pkg(); pkg != nil && strings.HasPrefix(pkg.Path(), strings.TrimSuffix(public[0], "engine")) && named.Obj().Exported() {
			s.methods(pkg.Name()+"."+named.Obj().Name(), named)
		}
		return
	}
	s.seen[t] = true
	switch t := t.(type) {
	case *types.Pointer:
		s.typ(where, t.Elem())
	case *types.Slice:
		s.typ(where, t.Elem())
	case *types.Array:
		s.typ(where, t.Elem())
	case *types.Chan:
		s.typ(where, t.Elem())
	case *types.Map:
		s.typ(where, t.Key())
		s.typ(where, t.Elem())
	case *types.Signature:
		for _, list := range []*types.Tuple{t.Params(), t.Results()} {
			for v := range list.Variables() {
				s.typ(where, v.Type())
			}
		}
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() {
				s.typ(where+"."+f.Name(), f.Type())
			}
		}
	case *types.Interface:
		for m := range t.ExplicitMethods() {
			s.typ(where+"."+m.Name(), m.Type())
		}
		for e := range t.EmbeddedTypes() {
			s.typ(where, e)
		}
	}
}

// exported reads a package as the compiler leaves it for those that import it.
func exported(path string) (*types.Package, error) {
	files, err := exports(path)
	if err != nil {
		return nil, err
	}
	lookup := func(path string) (io.ReadCloser, error) {
		if files[path] == "" {
			return nil, errors.New("no export data for " + path)
		}
		return os.Open(files[path])
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", lookup).Import(path)
}

// exports are the files of export data of a package and of all that it imports.
func exports(path string) (map[string]string, error) {
	out, err := goList("-export", "-deps", "-json=ImportPath,Export", path)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return files, nil
		} else if err != nil {
			return nil, err
		}
		files[p.ImportPath] = p.Export
	}
}

func goList(args ...string) (string, error) {
	c := exec.Command("go", append([]string{"list"}, args...)...)
	c.Dir, c.Stderr = top, os.Stderr
	out, err := c.Output()
	return string(out), err
}

// The program for the nodes is started at each command of some environments, and put on
// each node: the command line and the configuration are not linked into it. HTTP is, for
// the broker alone.
func TestNodeProgram(t *testing.T) {
	out, err := goList("-deps", "-tags", "berthnode", "./cmd/berth-node")
	if err != nil {
		t.Fatal(err)
	}
	list := strings.Fields(out)
	for _, not := range []string{
		"berth/internal/config", "berth/internal/images/fetch", "berth/internal/network/policy/suffix",
		"github.com/klauspost/compress/zstd", "github.com/spf13/cobra",
	} {
		if slices.Contains(list, not) {
			t.Errorf("%s is linked into it", not)
		}
	}
	if !slices.Contains(list, "berth/engine") {
		t.Errorf("it has %d packages, and not berth/engine", len(list))
	}
}
