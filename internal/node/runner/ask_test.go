package runner

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"berth/internal/link/wire"
	"berth/jobs/store"
)

func askOf(words ...string) wire.AskMessage { return wire.AskMessage{Words: wire.Texts(words)} }

// What a task sends is text and numbers, bounded, or refused by name.
func TestAskHostile(t *testing.T) {
	q := &asks{dir: t.TempDir(), log: slog.New(slog.DiscardHandler)}
	for _, words := range [][]string{
		{"progress"}, {"progress", " \n "}, {"metric"}, {"metric", "loss"}, {"metric", "=1"}, {"metric", "a=Inf"}, {"metric", "a=-nan"},
		{"metric", "a b=1"}, {"metric", "a\n=1"}, {"metric", strings.Repeat("a", 65) + "=1"}, {"metric", "../../x=1e400"},
		{"review", "approve"}, {"retry", "x"}, {"\x1b[2J"}, {"submit", "x"}, {strings.Repeat("x", 1<<20)},
	} {
		a := q.answer(t.Context(), askOf(words...))
		if a.Code == 0 || len(a.Err) > 600 || strings.ContainsAny(string(a.Err), "\x1b\r") || strings.Count(string(a.Err), "\n") != 2 {
			t.Errorf("%.60q: %d %.700q", words, a.Code, a.Err)
		}
	}
	if p := store.LoadProgress(q.dir); p != nil {
		t.Errorf("recorded %+v", p)
	}
	for i := range 200 {
		q.answer(t.Context(), askOf("metric", fmt.Sprintf("m%d=1", i)))
	}
	q.answer(t.Context(), askOf("progress", strings.Repeat("é\n", 100_000)))
	q.flush()
	if p := store.LoadProgress(q.dir); p == nil || len(p.Metrics) != 100 || len([]rune(p.Text)) > 200 || strings.Contains(p.Text, "\n") {
		t.Errorf("recorded %+v", p)
	}
}

// However often it tells, it is written once a second, and the last word counts.
func TestAskPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &asks{dir: t.TempDir(), log: slog.New(slog.DiscardHandler)}
		q.answer(t.Context(), askOf("progress", "first"))
		for i := range 100 {
			q.answer(t.Context(), askOf("progress", fmt.Sprint(i)))
		}
		if p := store.LoadProgress(q.dir); p == nil || p.Text != "first" {
			t.Errorf("at once: %+v", p)
		}
		time.Sleep(tellEvery)
		synctest.Wait()
		if p := store.LoadProgress(q.dir); p == nil || p.Text != "99" {
			t.Errorf("later: %+v", p)
		}
		q.answer(t.Context(), askOf("progress", "last"))
		q.flush()
		if p := store.LoadProgress(q.dir); p == nil || p.Text != "last" {
			t.Errorf("at the end: %+v", p)
		}
	})
}
