package cli

import "fmt"

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func sign(ins, del int) string { return fmt.Sprintf("+%d -%d lines", ins, del) }
