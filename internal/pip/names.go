package pip

import (
	"strings"
	"sync"
)

// importNames maps names of modules to the distributions that contain these modules. It contains a
// module only if the package index has no project with the module's name, or if this project is not
// the one that the module belongs to. The map is made at its first use, like standardModules.
var importNames = sync.OnceValue(func() map[string]string {
	return map[string]string{
		"Bio": "biopython", "Crypto": "pycryptodome", "Cryptodome": "pycryptodomex", "MySQLdb": "mysqlclient", "OpenSSL": "pyOpenSSL", "PIL": "pillow",
		"bs4": "beautifulsoup4", "cv2": "opencv-python-headless", "dateutil": "python-dateutil", "docx": "python-docx", "dotenv": "python-dotenv",
		"faiss": "faiss-cpu", "fitz": "PyMuPDF", "git": "GitPython", "googleapiclient": "google-api-python-client", "imblearn": "imbalanced-learn",
		"mpl_toolkits": "matplotlib", "nacl": "PyNaCl", "osgeo": "GDAL", "pkg_resources": "setuptools", "pptx": "python-pptx", "pylab": "matplotlib",
		"serial": "pyserial", "skimage": "scikit-image", "sklearn": "scikit-learn", "usb": "pyusb", "wx": "wxPython", "yaml": "PyYAML", "zmq": "pyzmq",
	}
})

// standardModules contains the names of all modules that are in Python's standard library in any
// version from 3.9 to 3.14. The map is made at its first use, because few commands need it.
var standardModules = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for name := range strings.FieldsSeq(`
abc aifc annotationlib antigravity argparse array ast asynchat asyncio asyncore atexit audioop base64 bdb binascii bisect builtins bz2
cProfile calendar cgi cgitb chunk cmath cmd code codecs codeop collections colorsys compileall compression concurrent configparser
contextlib contextvars copy copyreg crypt csv ctypes curses dataclasses datetime dbm decimal difflib dis distutils doctest email encodings
ensurepip enum errno faulthandler fcntl filecmp fileinput fnmatch fractions ftplib functools gc genericpath getopt getpass gettext glob
graphlib grp gzip hashlib heapq hmac html http idlelib imaplib imghdr imp importlib inspect io ipaddress itertools json keyword lib2to3
linecache locale logging lzma mailbox mailcap marshal math mimetypes mmap modulefinder msilib msvcrt multiprocessing netrc nis nntplib nt
ntpath nturl2path numbers opcode operator optparse os ossaudiodev pathlib pdb pickle pickletools pipes pkgutil platform plistlib poplib
posix posixpath pprint profile pstats pty pwd py_compile pyclbr pydoc pydoc_data pyexpat queue quopri random re readline reprlib resource
rlcompleter runpy sched secrets select selectors shelve shlex shutil signal site smtpd smtplib sndhdr socket socketserver spwd sqlite3
sre_compile sre_constants sre_parse ssl stat statistics string stringprep struct subprocess sunau symtable sys sysconfig syslog tabnanny
tarfile telnetlib tempfile termios textwrap this threading time timeit tkinter token tokenize tomllib trace traceback tracemalloc tty
turtle turtledemo types typing unicodedata unittest urllib uu uuid venv warnings wave weakref webbrowser winreg winsound wsgiref xdrlib
xml xmlrpc zipapp zipfile zipimport zlib zoneinfo`) {
		names[name] = true
	}
	return names
})
