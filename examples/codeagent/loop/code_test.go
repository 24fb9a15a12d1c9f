package loop

import "testing"

func TestCodeOf(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, answer, code string }{
		{"one block", "I add.\n```python\nx = 1\n\nprint(x)\n```\nDone.", "x = 1\n\nprint(x)"},
		{"several are one", "```py\na = 1\n```\nand\n```Python3\nb = 2\n```", "a = 1\nb = 2"},
		{"no language", "```\nx = 1\n```", "x = 1"},
		{"other languages", "```sh\nrm -r x\n```\n```python\nx = 1\n```\n```json\n{}\n```", "x = 1"},
		{"line ends of Windows", "```python\r\nx = 1\r\n```\r\n", "x = 1"},
		{"indented fence", "- so:\n  ```python\nx = 1\n  ```", "x = 1"},
		{"longer fence", "````python\nx = '''\n```\n'''\n````", "x = '''\n```\n'''"},
		{"code in a line", "```x = 1```", ""},
		{"none", "The answer is 42.", ""},
		{"empty", "```python\n\n```", ""},
		{"cut off", "```python\nx = 1", ""},
		{"cut off after a whole one", "```python\nx = 1\n```\n```python\ny =", ""},
		{"nothing", "", ""},
	} {
		code, ok := codeOf(test.answer)
		if ok != (test.code != "") || ok && code != test.code {
			t.Errorf("%s: %q, %v", test.name, code, ok)
		}
	}
}
